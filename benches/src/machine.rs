//! What the numbers were measured on.
//!
//! Facts that a system does not tell are absent.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use skillgraft_engine::Model;
use skillgraft_kernels::Threads;

use crate::report::{Machine, Run};
use crate::subject::Subject;

/// Bytes that bandwidth is measured on: several times what a core's share of a
/// large last-level cache holds.
const STREAM_BYTES: usize = 1 << 30;
/// Passes over them.
const N_STREAMS: usize = 9;
/// Bytes that a thread reads at a time.
const STREAM_CHUNK_BYTES: usize = 1 << 20;
/// Allocations after which [`soak`] looks whether all of them were new memory.
const SOAK_ROUND: usize = 64;

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
        read_max_gb_s: None,
        read_bytes: None,
    }
}

/// Bytes to read for a bandwidth. A machine with little memory should not be made
/// to swap.
pub(crate) fn stream_bytes() -> usize {
    let available = proc_kib("/proc/meminfo", "MemAvailable:").map(|bytes| bytes as usize / 4);
    STREAM_BYTES.min(available.unwrap_or(STREAM_BYTES))
}

/// Rates at which all threads together read a buffer, in 1e9 bytes per second, one
/// for each pass over it.
pub(crate) fn read_rates(threads: &Threads, n_bytes: usize) -> Vec<f64> {
    let buffer: Vec<u64> = (0..(n_bytes / size_of::<u64>()) as u64).collect();
    let chunks: Vec<&[u64]> = buffer.chunks(STREAM_CHUNK_BYTES / size_of::<u64>()).collect();
    let pass = || {
        let sum = AtomicU64::new(0);
        let started = Instant::now();
        threads.for_each(chunks.len(), |i| {
            sum.fetch_add(sum_of(chunks[i]), Ordering::Relaxed);
        });
        let seconds = started.elapsed().as_secs_f64();
        black_box(sum.into_inner());
        size_of_val(buffer.as_slice()) as f64 / seconds / 1e9
    };
    (0..N_STREAMS).map(|_| pass()).collect()
}

/// Wrapping sum. Eight parts are read side by side: a single stream is bound by
/// latency, since a machine's prefetcher stops at each page.
fn sum_of(words: &[u64]) -> u64 {
    const LINE: usize = 8;
    let part_len = words.len() / 8 / LINE * LINE;
    let (parts, rest) = words.split_at(8 * part_len);
    let mut sums = [0_u64; LINE];
    for at in (0..part_len).step_by(LINE) {
        for part in parts.chunks_exact(part_len) {
            for (sum, word) in sums.iter_mut().zip(&part[at..at + LINE]) {
                *sum = sum.wrapping_add(*word);
            }
        }
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Memory of this process that lies in RAM, mapped files included, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    // Unlike `statm`, it is counted anew when it is read.
    proc_kib("/proc/self/smaps_rollup", "Rss:")
}

/// The most memory that a process has had in RAM: `self`, or a process id.
pub(crate) fn peak_rss_bytes(process: &str) -> Option<u64> {
    proc_kib(&format!("/proc/{process}/status"), "VmHWM:")
}

/// Has the system count the most memory of this process anew, so that a buffer that
/// only measures something is not counted. Whether it does.
pub(crate) fn reset_peak_rss() -> bool {
    // See proc_pid_clear_refs(5): 5 resets `VmHWM`.
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Holds what the allocator has been given back and not returned to the system, so
/// that new allocations of about `n_bytes` make the process grow. Drop it when the
/// growth has been measured.
pub(crate) fn soak(n_bytes: usize) -> Vec<Vec<u8>> {
    let mut held = Vec::new();
    while let Some(before) = resident_bytes() {
        held.extend((0..SOAK_ROUND).map(|_| vec![1_u8; n_bytes]));
        let grown = resident_bytes().map_or(0, |after| after.saturating_sub(before));
        if grown >= (SOAK_ROUND * n_bytes / 10 * 9) as u64 {
            break;
        }
    }
    held
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
        model_blake3: hex(&model.fingerprint()),
        kv_dtype: model.kv_geometry().dtype.name(),
        context: model.context_length(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[cfg(test)]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
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
        for rate in read_rates(&Threads::new(2), 3 * STREAM_CHUNK_BYTES + 8) {
            assert!((1e-2..1e5).contains(&rate), "{rate} GB/s");
        }
    }

    #[test]
    fn every_word_is_read() {
        for n in [0, 1, 31, 32, 33, 167] {
            assert_eq!(sum_of(&vec![3; n]), 3 * n as u64);
        }
    }

    #[test]
    fn bytes_as_hexadecimal_digits() {
        assert_eq!(hex(&[0, 7, 0xab, 255]), "0007abff");
    }

    /// One test, since resident memory is the whole process's.
    #[test]
    fn resident_memory_grows_with_what_is_touched() {
        const PIECE: usize = 60_000;
        let Some(start) = resident_bytes() else {
            eprintln!("SKIPPED: this system does not tell how much memory is resident");
            return;
        };
        let buffer = black_box(vec![1_u8; 64 << 20]);
        let grown = resident_bytes().expect("it was there before").saturating_sub(start);
        assert!(grown >= 48 << 20, "{grown} bytes for {}", buffer.len());

        let mut freed: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; PIECE]).collect();
        // What comes last keeps the rest from going back to the system.
        let last = freed.pop();
        drop(black_box(freed));
        let held = soak(PIECE);
        let before = resident_bytes().expect("it was there before");
        let fresh = black_box(vec![vec![1_u8; PIECE]; 1000]);
        let grown = resident_bytes().expect("it was there before").saturating_sub(before);
        assert!(grown as usize >= 800 * PIECE, "{grown} bytes beside {}", held.len());
        drop((last, fresh));
    }
}
