//! Peers in the text of a speed report.

use std::fmt::Write as _;

use super::{INTO_STRING, duration, ratio, size};
use crate::report::{BenchReport, PeerRate, PeerTiming, Workload};

/// Everything about peers; nothing when there was none.
pub(super) fn write(out: &mut String, report: &BenchReport) {
    if report.peers.is_empty() {
        return;
    }
    programs(out, report);
    turns(out, report);
    rates(out, report);
}

fn programs(out: &mut String, report: &BenchReport) {
    let memory = |bytes: Option<u64>| bytes.map_or_else(|| "not known".to_owned(), size);
    out.push_str("\nPeers, in turn with ours on the same token ids\n");
    for peer in &report.peers {
        let version = peer.version.as_deref().unwrap_or("version not told");
        writeln!(
            out,
            "{} {version}; HTTP costs it {} a request, ours nothing; peak memory {}",
            peer.name,
            duration(peer.http_ms),
            memory(peer.peak_rss_bytes)
        )
        .expect(INTO_STRING);
        let command = peer.command.as_ref().map(|command| format!("command: {command}"));
        for line in command.iter().chain(&peer.notes) {
            writeln!(out, "    {line}").expect(INTO_STRING);
        }
    }
    writeln!(
        out,
        "ours: {}; peak memory {}, model file {}",
        report.run.command,
        memory(report.peak_rss_bytes),
        memory(report.model_bytes)
    )
    .expect(INTO_STRING);
}

fn turns(out: &mut String, report: &BenchReport) {
    out.push_str(
        "\nTime to the first token, peer over ours (above 1 ours is faster, below 1 the peer)\n\
         skill  peer                        prefilled  cached    TTFT (fastest to slowest)  \
         over graft from disk  over open graft       over full prefill     equal tokens\n",
    );
    for workload in &report.workloads {
        for (name, peer) in &workload.peers {
            turn(out, workload, name, peer);
        }
    }
}

fn turn(out: &mut String, workload: &Workload, name: &str, peer: &PeerTiming) {
    let optional = |value| {
        let missing = || "-".to_owned();
        Option::map_or_else(value, missing, ratio)
    };
    let same = match peer.compared_tokens {
        0 => "-".to_owned(),
        n => format!("{} of {n}", peer.equal_tokens),
    };
    let ttft =
        format!("{:.0} ms ({:.0} to {:.0})", peer.ttft_ms, peer.ttft_min_ms, peer.ttft_max_ms);
    writeln!(
        out,
        "{:>5}  {name:<26} {:>10} {:>7} {ttft:>28}  {:<20}  {:<20}  {:<20}  {same}{}",
        workload.skill_tokens,
        peer.prefilled,
        peer.cached,
        ratio(peer.ratio),
        optional(peer.ratio_memory),
        optional(peer.ratio_exact),
        lost(peer.ratio.median),
    )
    .expect(INTO_STRING);
}

fn rates(out: &mut String, report: &BenchReport) {
    out.push_str(
        "\nToken/s, ours over the peer\n\
         what                     ours  peer                 peer (slowest to fastest)  ratio\n",
    );
    for rate in &report.prefill {
        for (name, peer) in &rate.peers {
            line(out, &format!("prefill {}", rate.tokens), rate.tok_s, name, peer);
        }
    }
    for rate in &report.decode {
        for (name, peer) in &rate.peers {
            line(out, &format!("decode behind {}", rate.context), rate.tok_s, name, peer);
        }
    }
}

fn line(out: &mut String, what: &str, ours: f64, name: &str, peer: &PeerRate) {
    let spread = format!("{:.0} ({:.0} to {:.0})", peer.tok_s, peer.min_tok_s, peer.max_tok_s);
    let (ratio, lost) = (ratio(peer.ratio), lost(peer.ratio.median));
    writeln!(out, "{what:<20} {ours:>8.0}  {name:<15} {spread:>30}  {ratio}{lost}")
        .expect(INTO_STRING);
}

/// Marks the cases in which the peer is ahead.
fn lost(ratio: f64) -> &'static str {
    if ratio < 1.0 { "  the peer is faster" } else { "" }
}
