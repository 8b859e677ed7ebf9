//! Micro-benchmarks of the kernels: the median of repeated calls on one thread,
//! and the best of them, which matters where the machine is shared; beside the
//! machine's streaming read bandwidth.
//!
//! Run with `cargo bench -p skillgraft-kernels`; arguments select by substring.
//! Under `cargo test` (`--test`, or no `--bench`) each runs once, to show that
//! it does.
#![expect(clippy::print_stdout, reason = "a benchmark reports")]

use std::hint::black_box;
use std::time::Instant;

use skillgraft_kernels::{
    AttentionFactors, AttentionSegment, AttentionShape, Coding, Cpu, Gate, Isa, KvShape, KvSource,
    KvTarget, PackedLinear, RopeTable, Threads, WeightBlock,
};
use skillgraft_kv::{KvBuffer, KvDtype, PositionDelta, RopePairing, RopeScaling, RopeSpec};

/// What was asked for.
struct Bench {
    quick: bool,
    filters: Vec<String>,
}

impl Bench {
    fn from_args() -> Self {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let quick = args.iter().any(|arg| arg == "--test") || !args.iter().any(|a| a == "--bench");
        let filters = args.into_iter().filter(|arg| !arg.starts_with('-')).collect();
        Bench { quick, filters }
    }

    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }

    /// Median seconds of a call, printed with `amount` units of work a call as
    /// giga-`unit` a second.
    fn run(&self, name: &str, amount: f64, unit: &str, mut call: impl FnMut()) {
        let mut time = || {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        };
        let first = time();
        let mut times = vec![first];
        if !self.quick {
            let n = (0.4 / first.max(1e-7)).clamp(7.0, 20_000.0) as usize;
            times = (0..n).map(|_| time()).collect();
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let rate = |seconds: f64| amount / seconds / 1e9;
        println!(
            "{name:<44} {:>10.1} us {:>8.1} G{unit}/s, best {:>8.1}",
            median * 1e6,
            rate(median),
            rate(times[0])
        );
    }
}

/// Values that look random and repeat from run to run.
fn values(n: usize, scale: f32) -> Vec<f32> {
    let mut state = 0x2545_f491_u32;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state as f32 / u32::MAX as f32 - 0.5) * scale
        })
        .collect()
}

/// Reads eight streams at once: a single one is bound by latency, since the
/// prefetcher of the machine stops at each page.
fn read_bandwidth(bench: &Bench) {
    let name = "streaming read, 128 MiB";
    if !bench.wants(name) {
        return;
    }
    let data = vec![1_u64; 16 << 20];
    bench.run(name, size_of_val(data.as_slice()) as f64, "B", || {
        let streams: [&[u64]; 8] = std::array::from_fn(|i| &data[i * (2 << 20)..][..2 << 20]);
        let mut sums = [0_u64; 8];
        for line in 0..(2 << 20) / 8 {
            for stream in streams {
                for (sum, value) in sums.iter_mut().zip(&stream[line * 8..line * 8 + 8]) {
                    *sum ^= value;
                }
            }
        }
        black_box(sums);
    });
}

fn linear(bench: &Bench, cpu: &Cpu, m: usize, k: usize, n: usize) {
    let name = format!("linear {} {m}x{k}x{n}", cpu.isa().name());
    if !bench.wants(&name) {
        return;
    }
    let packed = PackedLinear::from_row_major(cpu, n, k, &values(n * k, 0.1));
    let x = values(m * k, 2.0);
    let mut y = vec![0.0; m * n];
    bench.run(&name, (2 * m * k * n) as f64, "FLOP", || {
        cpu.linear(&x, &packed, None, &mut y);
    });
    if m == 1 {
        let bytes = packed.bytes() as f64;
        bench.run(&format!("{name} weights"), bytes, "B", || {
            cpu.linear(&x, &packed, None, &mut y);
        });
    }
}

/// Weights in few bits; operations are counted as those of `f32`.
fn quantised(bench: &Bench, cpu: &Cpu, coding: Coding, m: usize, k: usize, n: usize) {
    let bits = match coding {
        Coding::FourBits { .. } => "4 bits",
        Coding::FourBitsOffset => "4 bits offset",
        Coding::EightBits { .. } => "8 bits",
        Coding::EightBitsOffset => "8 bits offset",
    };
    let how = match (cpu.has_tiles(), cpu.has_vnni()) {
        (true, _) => " tiles",
        (false, true) => " vnni",
        (false, false) => "",
    };
    let name = format!("linear {bits} {}{how} {m}x{k}x{n}", cpu.isa().name());
    if !bench.wants(&name) {
        return;
    }
    let packed = PackedLinear::from_blocks(cpu, n, k, coding, |i, blocks| {
        for (at, block) in blocks.iter_mut().enumerate() {
            let code = |j: usize| ((i * 7 + at * 13 + j * 5) % 16) as u8;
            *block = WeightBlock { codes: std::array::from_fn(code), scale: 0.01, offset: -0.1 };
        }
    });
    let x = values(m * k, 2.0);
    let mut y = vec![0.0; m * n];
    bench.run(&name, (2 * m * k * n) as f64, "OP", || {
        cpu.linear(&x, &packed, None, &mut y);
    });
    if m == 1 {
        let bytes = packed.bytes() as f64;
        bench.run(&format!("{name} weights"), bytes, "B", || {
            cpu.linear(&x, &packed, None, &mut y);
        });
    }
}

fn attention(bench: &Bench, cpu: &Cpu, dtype: KvDtype, n_rows: usize, n_tokens: usize) {
    let (isa, factors) = (cpu.isa().name(), cpu.attention_factors().name());
    let name = format!("attention {isa} {factors} of {dtype} {n_rows} over {n_tokens}");
    if !bench.wants(&name) {
        return;
    }
    let (n_heads, n_kv_heads, head_dim) = (9, 3, 64);
    let shape =
        AttentionShape { n_rows, n_heads, n_kv_heads, head_dim, scale: 0.125, window: None };
    let span = KvShape { n_kv_heads, n_tokens, head_dim };
    let head_stride = n_tokens * head_dim;
    let make = |scale| {
        let mut buffer = KvBuffer::zeroed(dtype, n_kv_heads * head_stride);
        let from = KvBuffer::F32(values(n_kv_heads * head_stride, scale));
        let target = KvTarget { buffer: &mut buffer, head_stride, at_token: 0 };
        cpu.copy_kv(KvSource { view: from.view(), head_stride }, span, target);
        buffer
    };
    let (k, v) = (make(4.0), make(1.0));
    let segment = AttentionSegment { k: k.view(), v: v.view(), n_tokens, head_stride, frame: 0 };
    let q = values(n_rows * n_heads * head_dim, 4.0);
    let mut out = vec![0.0; q.len()];
    let seen: usize = (0..n_rows).map(|i| n_tokens - n_rows + i + 1).sum();
    bench.run(&name, (4 * seen * n_heads * head_dim) as f64, "FLOP", || {
        cpu.segment_attention(&shape, &q, &[segment], &mut out);
    });
}

fn relocate(bench: &Bench, cpu: &Cpu, n_tokens: usize) {
    let name = format!("relocate {} f16 {n_tokens}", cpu.isa().name());
    if !bench.wants(&name) {
        return;
    }
    let table = RopeTable::new(&RopeSpec {
        theta: 1e5,
        rotary_dim: 64,
        pairing: RopePairing::HalfSplit,
        scaling: RopeScaling::None,
    });
    let shape = KvShape { n_kv_heads: 3, n_tokens, head_dim: 64 };
    let head_stride = n_tokens * 64;
    let k = KvBuffer::zeroed(KvDtype::F16, 3 * head_stride);
    let mut out = KvBuffer::zeroed(KvDtype::F16, 3 * head_stride);
    let bytes = (k.len() * 4) as f64;
    bench.run(&name, bytes, "B", || {
        let target = KvTarget { buffer: &mut out, head_stride, at_token: 0 };
        let source = KvSource { view: k.view(), head_stride };
        cpu.relocate(&table, PositionDelta(77), source, shape, target);
    });
}

fn elementwise(bench: &Bench, cpu: &Cpu) {
    let (norm, gate) =
        (format!("rms_norm {}", cpu.isa().name()), format!("swiglu {}", cpu.isa().name()));
    if !bench.wants(&norm) && !bench.wants(&gate) {
        return;
    }
    let (m, n) = (256, 576);
    let (x, weight) = (values(m * n, 2.0), values(n, 1.0));
    let mut out = vec![0.0; m * n];
    let bytes = (2 * 4 * m * n) as f64;
    bench.run(&format!("{norm} {m}x{n}"), bytes, "B", || {
        cpu.rms_norm(&x, &weight, 1e-5, &mut out);
    });
    let gate_up = values(m * 2 * 1536, 4.0);
    let mut gated = vec![0.0; m * 1536];
    bench.run(&format!("{gate} {m}x1536"), (m * 1536) as f64, "elements", || {
        cpu.gated(Gate::Silu, &gate_up, 1536, &mut gated);
    });
}

fn main() {
    let bench = Bench::from_args();
    let long = if bench.quick { 130 } else { 2048 };
    read_bandwidth(&bench);
    for isa in Isa::available() {
        let cpu = Cpu::new(isa, Threads::new(1));
        for coding in
            [Coding::FourBits { zero: 8 }, Coding::FourBitsOffset, Coding::EightBits { zero: 128 }]
        {
            for (k, n) in [(576, 3072), (1536, 576), (576, 576)] {
                for m in [1, 2, 4, 6, 41, 512] {
                    if !(bench.quick && m > 6) {
                        quantised(&bench, &cpu, coding, m, k, n);
                    }
                }
                if cpu.has_tiles() {
                    let plain = Cpu::new(isa, Threads::new(1)).without_tiles();
                    for m in [8, 41, 512] {
                        quantised(&bench, &plain, coding, m.min(long), k, n);
                    }
                }
            }
            quantised(&bench, &cpu, coding, 1, 576, if bench.quick { 1000 } else { 49152 });
        }
        for (k, n) in [(576, 1536), (1536, 576), (576, 576), (576, 960)] {
            for m in [1, 2, 3, 4, 8, 12, 16, 64, 256] {
                if bench.quick && m > 16 {
                    continue;
                }
                linear(&bench, &cpu, m, k, n);
            }
        }
        linear(&bench, &cpu, 1, 576, if bench.quick { 1000 } else { 49152 });
        for factors in AttentionFactors::ALL {
            let Some(cpu) = Cpu::new(isa, Threads::new(1)).with_attention(factors) else {
                continue;
            };
            for dtype in [KvDtype::F16, KvDtype::F32] {
                attention(&bench, &cpu, dtype, 1, long * 65 / 102);
                attention(&bench, &cpu, dtype, 4, long);
                attention(&bench, &cpu, dtype, long / 8, long);
            }
        }
        relocate(&bench, &cpu, long);
        elementwise(&bench, &cpu);
    }
}
