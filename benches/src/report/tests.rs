use serde_json::Value;

use super::*;

fn run() -> Run {
    Run {
        command: "skillgraft bench".to_owned(),
        version: "0.0.0",
        model: "tiny".to_owned(),
        model_blake3: "00".to_owned(),
        kv_dtype: "f16",
        context: 64,
    }
}

fn machine() -> Machine {
    Machine {
        cpu: None,
        arch: "x86_64",
        os: "linux",
        cores: 3,
        memory_bytes: None,
        isa: "portable",
        threads: 2,
        read_gb_s: None,
        read_max_gb_s: None,
        read_bytes: None,
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn assert_has(value: &Value, expected: &[&str]) {
    let found = keys(value);
    for key in expected {
        assert!(found.contains(key), "`{key}` is not among {found:?}");
    }
}

/// A report of one turn in one mode.
pub(crate) fn bench_sample() -> BenchReport {
    let timing = ModeTiming {
        ttft_ms: 3.0,
        ttft_min_ms: 2.0,
        ttft_max_ms: 5.0,
        n: 7,
        prefilled: 11,
        grafted: 13,
        lookup_ms: 0.5,
        graft_ms: 0.1,
    };
    let ratio = Ratio { median: 4.0, low: 3.0, high: 6.0, coverage: 0.98, n: 7 };
    let workload = Workload {
        name: "skill-13".to_owned(),
        skill_tokens: 13,
        prefix_tokens: 17,
        live_tokens: 11,
        ours: [("exact", timing)].into(),
        peers: BTreeMap::new(),
        ratio,
        ratio_memory: ratio,
        agreement: Agreement { top1: true, kl: 0.25 },
    };
    BenchReport {
        run: run(),
        machine: machine(),
        peak_rss_bytes: None,
        model_bytes: None,
        peers: Vec::new(),
        graft: Vec::new(),
        workloads: vec![workload],
        session: None,
        prefill_tok_s: [(32, 400.0)].into(),
        decode_tok_s: [(0, 50.0)].into(),
        prefill: Vec::new(),
        decode: Vec::new(),
    }
}

#[test]
fn bench_has_the_keys_that_scripts_use() {
    let report = bench_sample();
    let json = serde_json::to_value(&report).unwrap();
    assert_has(&json, &["machine", "workloads", "prefill_tok_s", "decode_tok_s", "graft", "run"]);
    let workload = &json["workloads"][0];
    let expected = ["name", "skill_tokens", "ours", "peers", "ratio", "agreement"];
    assert_has(workload, &expected);
    assert_has(&workload["ours"]["exact"], &["ttft_ms", "prefilled"]);
    assert_has(&workload["ratio"], &["median", "low", "high"]);
    assert_eq!(json["prefill_tok_s"]["32"], 400.0);
    assert_eq!(json["machine"]["cpu"], Value::Null, "what is not known is null");
}

/// A report of one mode, without its cases.
pub(crate) fn fidelity_sample() -> FidelityReport {
    let interval = Interval { low: 0.0, high: 1.0 };
    let positions = Positions {
        positions: 5,
        kl_mean: 0.01,
        kl_mean_interval: interval,
        kl_p95: 0.02,
        kl_p99: 0.02,
        kl_max: 0.03,
        top1: 0.9,
        top1_interval: interval,
        catastrophic: 0,
    };
    let method = MethodReport {
        cases: 3,
        answer: positions.clone(),
        em: 0.7,
        em_interval: interval,
        em_exact: 0.8,
        recomputed: 0.1,
        saved_tokens: 400.0,
        saved_ms: 250.0,
        equal_run: 60.5,
        ttft_ms: 12.0,
        greedy: positions,
    };
    FidelityReport {
        run: run(),
        machine: machine(),
        evalset: "built-in".to_owned(),
        setting: Setting::default(),
        noise_floor: NoiseFloor {
            chunk_tokens: 37,
            kl_mean: 0.0,
            kl_max: 0.0,
            top1: 1.0,
            positions: 9,
        },
        modes: [("graft-lone", method)].into(),
        cases: None,
    }
}

#[test]
fn fidelity_has_the_keys_that_scripts_use() {
    let report = fidelity_sample();
    let json = serde_json::to_value(&report).unwrap();
    assert_has(&json["noise_floor"], &["kl_mean", "top1"]);
    let expected = [
        "cases",
        "kl_mean",
        "kl_p95",
        "kl_max",
        "top1",
        "em",
        "em_exact",
        "catastrophic",
        "recomputed",
        "ttft_ms",
    ];
    assert_has(&json["modes"]["graft-lone"], &expected);
    assert_has(&json["modes"]["graft-lone"]["greedy"], &["kl_mean", "top1"]);
    assert!(!keys(&json).contains(&"cases"), "cases are listed when they are asked for");
    let listed = FidelityReport { cases: Some(Vec::new()), ..report };
    assert_has(&serde_json::to_value(&listed).unwrap(), &["cases"]);
}
