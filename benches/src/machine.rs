//! What the numbers were measured on.
//!
//! Facts that a system does not tell are absent.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use skillgraft_engine::Model;
use skillgraft_kernels::Threads;

use crate::report::{Machine, Run};
use crate::stats::median;
use crate::subject::Subject;

/// Bytes that bandwidth is measured on: several times what a core's share of a
/// large last-level cache holds.
const STREAM_BYTES: usize = 1 << 30;
/// Passes over them; the median counts.
const N_STREAMS: usize = 9;
/// Bytes that a thread reads at a time.
const STREAM_CHUNK_BYTES: usize = 1 << 20;

/// Describes the machine as a model's backend uses it.
pub(crate) fn describe(model: &Model) -> Machine {
    let cpu = model.backend().cpu();
    Machine {
        cpu: cpu_model(),
        arch: std::env::consts::ARCH,
        os: std::env::consts::OS,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: proc_kib("/proc/meminfo", "MemTotal:"),
        isa: cpu.isa().name(),
        threads: cpu.threads().count(),
        read_gb_s: None,
        read_bytes: None,
    }
}

/// Adds what reading memory takes.
pub(crate) fn measure_bandwidth(machine: &mut Machine, threads: &Threads) {
    // A machine with little memory should not be made to swap.
    let available = proc_kib("/proc/meminfo", "MemAvailable:").map(|bytes| bytes as usize / 4);
    let n_bytes = STREAM_BYTES.min(available.unwrap_or(STREAM_BYTES));
    machine.read_gb_s = Some(read_bytes_per_s(threads, n_bytes) / 1e9);
    machine.read_bytes = Some(n_bytes);
}

/// Bytes per second at which all threads together read a buffer.
fn read_bytes_per_s(threads: &Threads, n_bytes: usize) -> f64 {
    let buffer: Vec<u64> = (0..(n_bytes / size_of::<u64>()) as u64).collect();
    let chunks: Vec<&[u64]> = buffer.chunks(STREAM_CHUNK_BYTES / size_of::<u64>()).collect();
    let seconds: Vec<f64> = (0..N_STREAMS)
        .map(|_| {
            let sum = AtomicU64::new(0);
            let started = Instant::now();
            threads.for_each(chunks.len(), |i| {
                let part = chunks[i].iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
                sum.fetch_add(part, Ordering::Relaxed);
            });
            let seconds = started.elapsed().as_secs_f64();
            black_box(sum.into_inner());
            seconds
        })
        .collect();
    size_of_val(buffer.as_slice()) as f64 / median(&seconds)
}

/// Memory of this process that lies in RAM, mapped files included, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    // Unlike `statm`, it is counted anew when it is read.
    proc_kib("/proc/self/smaps_rollup", "Rss:")
}

/// A line `key: 123 kB` of a file under `/proc`, in bytes.
fn proc_kib(path: &str, key: &str) -> Option<u64> {
    kib_line(&std::fs::read_to_string(path).ok()?, key)
}

fn kib_line(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn cpu_model() -> Option<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

/// What was run: program, command line and model.
pub(crate) fn describe_run(subject: &Subject, command: &str) -> Run {
    let model = &subject.model;
    Run {
        command: command.to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        model: subject.model_name.clone(),
        model_blake3: model.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect(),
        kv_dtype: model.kv_geometry().dtype.name(),
        context: model.context_length(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_in_kib() {
        let text = "MemTotal:       24576 kB\nMemFree:  12 kB\nHugePages_Total:  3\n";
        assert_eq!(kib_line(text, "MemTotal:"), Some(24576 * 1024));
        assert_eq!(kib_line(text, "MemFree:"), Some(12 * 1024));
        assert_eq!(kib_line(text, "HugePages_Total:"), None, "a count is no size");
        assert_eq!(kib_line(text, "Swap:"), None);
    }

    #[test]
    fn a_stream_is_faster_than_a_disk_and_slower_than_light() {
        let rate = read_bytes_per_s(&Threads::new(2), 3 * STREAM_CHUNK_BYTES + 8);
        assert!((1e7..1e14).contains(&rate), "{rate} bytes per second");
    }

    #[test]
    fn touched_memory_is_resident() {
        let Some(before) = resident_bytes() else {
            // Off Linux nothing is measured, and reports say so.
            return;
        };
        let buffer = black_box(vec![1_u8; 64 << 20]);
        let grown = resident_bytes().expect("it was there before").saturating_sub(before);
        assert!(grown >= 48 << 20, "{grown} bytes for {}", buffer.len());
    }
}
