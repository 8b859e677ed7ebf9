//! RoPE against numbers of the `transformers` library.
//!
//! `data/rope.json` holds eight configurations; `data/rope.safetensors` their
//! frequencies from `ROPE_INIT_FUNCTIONS` (transformers 5.24), and keys before
//! and after a relocation, rotated in `f64`.
#![expect(clippy::unwrap_used, reason = "the helpers are of tests")]

use safetensors::SafeTensors;
use serde_json::Value;
use skillgraft_kernels::{Cpu, Isa, KvShape, KvSource, KvTarget, RopeTable, Threads};
use skillgraft_kv::{KvBuffer, PositionDelta, RopePairing, RopeScaling, RopeSpec};

use crate::common::{assert_close, poison};

const TOLERANCE: f64 = 1e-5;

fn data_file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = tensors.tensor(name).unwrap();
    tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

/// A configuration in the words of `transformers`.
fn spec(config: &Value, pairing: RopePairing) -> RopeSpec {
    let parameters = &config["rope_parameters"];
    let number = |name: &str, default: f64| parameters[name].as_f64().unwrap_or(default);
    let factor = number("factor", 1.0);
    let original_context = number("original_max_position_embeddings", 0.0) as u32;
    let scaling = match parameters["rope_type"].as_str().unwrap() {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor },
        "llama3" => RopeScaling::Llama3 {
            factor,
            low_freq_factor: number("low_freq_factor", 0.0),
            high_freq_factor: number("high_freq_factor", 0.0),
            original_context,
        },
        "yarn" => RopeScaling::Yarn {
            factor,
            beta_fast: number("beta_fast", 32.0),
            beta_slow: number("beta_slow", 1.0),
            original_context,
            attention_factor: None,
        },
        other => panic!("unknown rope type {other}"),
    };
    let rotary_dim = config["head_dim"].as_u64().unwrap() as usize;
    RopeSpec { theta: number("rope_theta", 0.0), rotary_dim, pairing, scaling }
}

#[test]
fn tables_and_rotations_are_those_of_transformers() {
    let configs: Value = serde_json::from_slice(&data_file("rope.json")).unwrap();
    let bytes = data_file("rope.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let configs = configs.as_object().unwrap();
    assert_eq!(configs.len(), 8);
    for (name, config) in configs {
        for (pairing, layout) in
            [(RopePairing::HalfSplit, "half"), (RopePairing::Interleaved, "inter")]
        {
            let table = RopeTable::new(&spec(config, pairing));
            let scaling = config["attention_scaling"].as_f64().unwrap();
            assert!((table.attention_scaling() - scaling).abs() < 1e-9, "{name}");
            let inv_freq = floats(&tensors, &format!("{name}.inv_freq"));
            assert_eq!(table.inv_freq().len(), inv_freq.len());
            for (got, wanted) in table.inv_freq().iter().zip(inv_freq) {
                let error = (got / f64::from(wanted) - 1.0).abs();
                assert!(error < 5e-7, "{name}: {got}, not {wanted}");
            }
            let raw = floats(&tensors, &format!("{name}.k_raw"));
            let before = floats(&tensors, &format!("{name}.{layout}.k_before"));
            let after = floats(&tensors, &format!("{name}.{layout}.k_after"));
            for isa in Isa::available() {
                let what = format!("{name} {layout} {}", isa.name());
                let cpu = Cpu::new(isa, Threads::new(1));
                let got = first_rotation(&cpu, &table, &raw, &integers(&config["pos_before"]));
                assert_close(&got, &widened(&before), TOLERANCE, &what);
                let got = relocation(&cpu, &table, &before, &integers(&config["delta"]));
                assert_close(&got, &widened(&after), TOLERANCE, &what);
            }
        }
    }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

fn first_rotation(cpu: &Cpu, table: &RopeTable, raw: &[f32], positions: &[i64]) -> Vec<f32> {
    let dim = table.rotary_dim();
    let mut k = raw.to_vec();
    cpu.rotate(&mut k, dim, 1, dim, &table.angles(positions.iter().copied()));
    k
}

fn relocation(cpu: &Cpu, table: &RopeTable, before: &[f32], deltas: &[i64]) -> Vec<f32> {
    let head_dim = table.rotary_dim();
    let shape = KvShape { n_kv_heads: 1, n_tokens: 1, head_dim };
    let mut out = Vec::new();
    for (row, &delta) in before.chunks_exact(head_dim).zip(deltas) {
        let source = KvBuffer::F32(row.to_vec());
        let source = KvSource { view: source.view(), head_stride: head_dim };
        let mut moved = KvBuffer::F32(poison(head_dim));
        let target = KvTarget { buffer: &mut moved, head_stride: head_dim, at_token: 0 };
        cpu.relocate(table, PositionDelta(delta as i32), source, shape, target);
        let KvBuffer::F32(moved) = moved else { unreachable!("made as f32") };
        out.extend(moved);
    }
    out
}

#[test]
fn divisors_divide_the_plain_frequencies() {
    let mut spec = RopeSpec {
        theta: 5e5,
        rotary_dim: 8,
        pairing: RopePairing::Interleaved,
        scaling: RopeScaling::None,
    };
    let plain = RopeTable::new(&spec);
    spec.scaling = RopeScaling::Divisors(vec![1.0, 2.0, 8.0, 32.0]);
    let divided = RopeTable::new(&spec);
    let ratios: Vec<f64> =
        plain.inv_freq().iter().zip(divided.inv_freq()).map(|(plain, by)| plain / by).collect();
    assert_eq!(ratios, [1.0, 2.0, 8.0, 32.0]);
}

#[test]
fn a_given_attention_factor_replaces_the_formula() {
    let yarn = |attention_factor| {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 4096,
            attention_factor,
        };
        let pairing = RopePairing::HalfSplit;
        RopeTable::new(&RopeSpec { theta: 1e4, rotary_dim: 16, pairing, scaling })
    };
    assert!((yarn(None).attention_scaling() - 1.138_629_436_111_989).abs() < 1e-12);
    assert!((yarn(Some(1.5)).attention_scaling() - 1.5).abs() < 1e-12);
    let (first, again) = (yarn(Some(1.5)).angles([0]), yarn(Some(1.5)).angles_pure([0]));
    assert_eq!(first.row(0).0, [1.5; 8]);
    assert_eq!(again.row(0).0, [1.0; 8]);
}
