//! Reports as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

mod peers;

use crate::fidelity::{Order, Setting};
use crate::report::{
    BenchReport, EditsReport, FidelityReport, Machine, ModeTiming, Ratio, Run, SessionReport,
    SessionTiming,
};

/// Why a write cannot fail.
const INTO_STRING: &str = "writing into a string cannot fail";

/// The text of a speed report.
pub fn bench_table(report: &BenchReport) -> String {
    let mut out = head(&report.run, &report.machine);
    blocks(&mut out, report);
    turns(&mut out, report);
    if let Some(session) = &report.session {
        conversation(&mut out, session);
    }
    rates(&mut out, report);
    peers::write(&mut out, report);
    out
}

fn conversation(out: &mut String, session: &SessionReport) {
    writeln!(
        out,
        "\nA conversation of {} turns, skills of {} tokens: tokens prefilled, time to the first token",
        session.turns.len(),
        session.skill_tokens
    )
    .expect(INTO_STRING);
    let names: Vec<&String> = session.total.keys().collect();
    write!(out, "turn          ").expect(INTO_STRING);
    for name in &names {
        write!(out, " {name:>20}").expect(INTO_STRING);
    }
    let mut row = |what: &str, timings: &BTreeMap<String, SessionTiming>| {
        write!(out, "\n{what:<14}").expect(INTO_STRING);
        for name in &names {
            let SessionTiming { ttft_ms, prefilled } = timings[*name];
            write!(out, " {prefilled:>8} {:>11}", duration(ttft_ms)).expect(INTO_STRING);
        }
    };
    for turn in &session.turns {
        row(&format!("{} {}", turn.turn, turn.what), &turn.timings);
    }
    row("all", &session.total);
    out.push('\n');
}

/// The text of a fidelity report.
pub fn fidelity_table(report: &FidelityReport) -> String {
    let mut out = head(&report.run, &report.machine);
    let floor = report.noise_floor;
    let line = format!(
        "\nFull prefill against itself, in chunks of {}: KL mean {:.2e}, largest {:.2e}, top-1 {:.4} \
         ({} positions)\n\n\
         Against full prefill, along the gold answers of `{}`{}\n",
        floor.chunk_tokens,
        floor.kl_mean,
        floor.kl_max,
        floor.top1,
        floor.positions,
        report.evalset,
        setting_words(&report.setting),
    );
    out.push_str(&line);
    out.push_str(
        "mode            cases  KL mean [95 %]             p95     p99     max    top-1  \
         EM   [95 %]         EM exact  catastrophic  anew  TTFT\n",
    );
    for (name, mode) in &report.modes {
        let answer = &mode.answer;
        writeln!(
            out,
            "{name:<14} {:>6}  {:.5} [{:.5}, {:.5}] {:>7.4} {:>7.4} {:>7.3}  {:.4}  {:.3} [{:.3}, {:.3}]  {:.3}  {:>12}  {:>3.0} %  {}",
            mode.cases,
            answer.kl_mean,
            answer.kl_mean_interval.low,
            answer.kl_mean_interval.high,
            answer.kl_p95,
            answer.kl_p99,
            answer.kl_max,
            answer.top1,
            mode.em,
            mode.em_interval.low,
            mode.em_interval.high,
            mode.em_exact,
            answer.catastrophic,
            mode.recomputed * 100.0,
            duration(mode.ttft_ms),
        )
        .expect(INTO_STRING);
    }
    greedy(&mut out, report);
    out
}

/// What edits do to answers, as a text for people.
pub fn edits_table(report: &EditsReport) -> String {
    let mut out = head(&report.run, &report.machine);
    for (situation, methods) in &report.situations {
        let what = match *situation {
            "answered" => "The old value was given as an answer since the skill came in",
            _ => "Nothing was generated since the skill came in",
        };
        writeln!(
            out,
            "\n{what} (`{}`)\nmethod          cases  new value [95 %]      old value  KL mean   tokens",
            report.evalset
        )
        .expect(INTO_STRING);
        for (name, method) in methods {
            writeln!(
                out,
                "{name:<14} {:>6}  {:.3} [{:.3}, {:.3}]  {:>9.3}  {:.5}  {:>5.1} %",
                method.cases,
                method.new_right,
                method.new_right_interval.low,
                method.new_right_interval.high,
                method.old_given,
                method.kl_mean,
                method.recomputed_share * 100.0,
            )
            .expect(INTO_STRING);
        }
    }
    if let Some(pairs) = &report.pairs {
        writeln!(
            out,
            "\nReal edits: {} pairs; {} with an equal body, {} edited in place ({:.1} % of the tokens \
             computed anew), {} brought in again\n\
             along full prefill's answers ({} positions, {} pairs left out as too long):\n\
             nothing  KL mean {:.4}  top-1 {:.4}\npatch    KL mean {:.4}  top-1 {:.4}",
            pairs.pairs,
            pairs.body_is_equal,
            pairs.edited_in_place,
            pairs.recomputed_share * 100.0,
            pairs.brought_in_again,
            pairs.patch.positions,
            pairs.too_long,
            pairs.nothing.kl_mean,
            pairs.nothing.top1,
            pairs.patch.kl_mean,
            pairs.patch.top1,
        )
        .expect(INTO_STRING);
    }
    out
}

/// What is unusual about the contexts, in words.
pub(crate) fn setting_words(setting: &Setting) -> String {
    let mut words = Vec::new();
    if setting.order == Order::Before {
        words.push("the question before the skill".to_owned());
    }
    if setting.n_skills > 1 {
        words.push(format!("{} skills at once", setting.n_skills));
    }
    if setting.distance > 0 {
        words.push(format!("{} tokens of talk before", setting.distance));
    }
    if let Some(length) = setting.length {
        words.push(format!("skills of {length} tokens"));
    }
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

fn greedy(out: &mut String, report: &FidelityReport) {
    out.push_str("\nAlong full prefill's own greedy continuation\n");
    out.push_str(
        "mode            positions  KL mean [95 %]             p95     max    top-1 [95 %]           catastrophic\n",
    );
    for (name, mode) in &report.modes {
        let greedy = &mode.greedy;
        writeln!(
            out,
            "{name:<14} {:>10}  {:.5} [{:.5}, {:.5}] {:>7.4} {:>7.3}  {:.4} [{:.4}, {:.4}] {:>13}",
            greedy.positions,
            greedy.kl_mean,
            greedy.kl_mean_interval.low,
            greedy.kl_mean_interval.high,
            greedy.kl_p95,
            greedy.kl_max,
            greedy.top1,
            greedy.top1_interval.low,
            greedy.top1_interval.high,
            greedy.catastrophic,
        )
        .expect(INTO_STRING);
    }
}

fn head(run: &Run, machine: &Machine) -> String {
    let cpu = machine.cpu.as_deref().unwrap_or(machine.arch);
    let memory =
        machine.memory_bytes.map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
    let bandwidth =
        machine.read_gb_s.map_or_else(String::new, |gb_s| format!(", reads {gb_s:.1} GB/s"));
    format!(
        "machine  {cpu}, {} cores{memory}; {} on {} threads{bandwidth}\n\
         model    {}, KV {}; skillgraft {}\n",
        machine.cores, machine.isa, machine.threads, run.model, run.kv_dtype, run.version
    )
}

fn blocks(out: &mut String, report: &BenchReport) {
    out.push_str(
        "\nBlocks (medians; the file is in the page cache when it is opened)\n\
         tokens      bytes    compile      write  open+check      graft        p95  \
         one more session (its own page)\n",
    );
    for block in &report.graft {
        let session = match block.session_rss_bytes {
            Some(bytes) if bytes < 0 => format!("-{}", size(bytes.unsigned_abs())),
            Some(bytes) => size(bytes.unsigned_abs()),
            None => "not measured".to_owned(),
        };
        writeln!(
            out,
            "{:>6} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10}  {session} ({})",
            block.tokens,
            size(block.block_bytes as u64),
            duration(block.compile_ms),
            duration(block.write_ms),
            duration(block.open_ms),
            duration(block.graft_ms),
            duration(block.graft_p95_ms),
            size(block.page_bytes as u64),
        )
        .expect(INTO_STRING);
    }
}

fn turns(out: &mut String, report: &BenchReport) {
    out.push_str(
        "\nTime to the first token (median, fastest to slowest)\n\
         skill             full prefill          graft from disk        graft from memory  \
         ratio from disk       ratio from memory     first token\n",
    );
    for workload in &report.workloads {
        let of = |mode: &str| workload.ours.get(mode).map_or_else(String::new, spread);
        let agreement = workload.agreement;
        let same = if agreement.top1 { "same" } else { "other" };
        writeln!(
            out,
            "{:>5} {:>24} {:>24} {:>24}  {:<20}  {:<20}  {same}, KL {:.4}",
            workload.skill_tokens,
            of("exact"),
            of("graft_disk"),
            of("graft_memory"),
            ratio(workload.ratio),
            ratio(workload.ratio_memory),
            agreement.kl,
        )
        .expect(INTO_STRING);
    }
}

fn rates(out: &mut String, report: &BenchReport) {
    out.push_str(
        "\nPrefill into an empty context\ntokens   token/s    slowest    fastest   GFLOP/s\n",
    );
    for rate in &report.prefill {
        writeln!(
            out,
            "{:>6} {:>9.0} {:>10.0} {:>10.0} {:>9.0}",
            rate.tokens, rate.tok_s, rate.min_tok_s, rate.max_tok_s, rate.gflop_s
        )
        .expect(INTO_STRING);
    }
    out.push_str("\nDecode\ncontext  token/s       TPOT        p95  limit of memory   reached\n");
    for rate in &report.decode {
        let limit = rate
            .limit_tok_s
            .map_or_else(|| "unknown".to_owned(), |limit| format!("{limit:.0} token/s"));
        let reached = rate
            .limit_fraction
            .map_or_else(|| "unknown".to_owned(), |part| format!("{:.0} %", part * 100.0));
        writeln!(
            out,
            "{:>7} {:>8.1} {:>10} {:>10} {limit:>16} {reached:>9}",
            rate.context,
            rate.tok_s,
            duration(rate.tpot_ms),
            duration(rate.tpot_p95_ms),
        )
        .expect(INTO_STRING);
    }
}

fn spread(timing: &ModeTiming) -> String {
    let digits = usize::from(timing.ttft_max_ms < 100.0);
    format!(
        "{:.digits$} ms ({:.digits$} to {:.digits$})",
        timing.ttft_ms, timing.ttft_min_ms, timing.ttft_max_ms
    )
}

fn ratio(ratio: Ratio) -> String {
    format!("{:.2} [{:.2}, {:.2}]", ratio.median, ratio.low, ratio.high)
}

/// A duration with about three digits.
pub(crate) fn duration(ms: f64) -> String {
    match ms {
        ms if ms < 0.1 => format!("{:.1} us", ms * 1e3),
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

/// A size with about three digits.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes < 1e6 => format!("{:.0} kB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_keep_about_three_digits() {
        for (ms, text) in [
            (0.000_25, "0.2 us"),
            (0.0999, "99.9 us"),
            (0.1, "0.10 ms"),
            (9.876, "9.88 ms"),
            (4321.0, "4321 ms"),
            (12_345.0, "12.3 s"),
        ] {
            assert_eq!(duration(ms), text);
        }
        for (bytes, text) in
            [(0, "0 kB"), (23_040, "23 kB"), (5_898_240, "5.9 MB"), (25_200_000_000, "25.2 GB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_ratio_shows_its_interval() {
        let shown = Ratio { median: 4.0, low: 3.456, high: 6.0, coverage: 0.98, n: 7 };
        assert_eq!(ratio(shown), "4.00 [3.46, 6.00]");
    }
}
