//! The page of speed: what a skill costs, against its length and against others.

use std::collections::BTreeMap;

use minijinja::context;
use minijinja::value::{Serde, Value};

use super::plot::{Axes, Series, lines};
use super::render;
use crate::error::Error;
use crate::report::{BenchReport, ModeTiming, PeerTiming};

const TEMPLATE: &str = include_str!("bench.html");

pub(super) fn page(report: &BenchReport) -> Result<String, Error> {
    let axes = |y, is_log_y| Axes { x: "tokens of the skill", y, is_log_y };
    let ttft = lines(&axes("ms to the first token", true), &ttft(report))?;
    let prefilled = lines(&axes("tokens prefilled", true), &prefilled(report))?;
    render(
        TEMPLATE,
        context! {
            report => Value::from(Serde(report)),
            ttft => Value::from(Serde(ttft)),
            prefilled => Value::from(Serde(prefilled)),
        },
    )
}

/// Time to the first token by the skill's length, in each mode and beside peers.
fn ttft(report: &BenchReport) -> Vec<Series> {
    let ours = |mode: &ModeTiming| (mode.ttft_ms, [mode.ttft_min_ms, mode.ttft_max_ms]);
    let peers = |peer: &PeerTiming| (peer.ttft_ms, [peer.ttft_min_ms, peer.ttft_max_ms]);
    series(report, &ours, &peers)
}

/// Tokens that a turn prefills, in each mode and beside peers.
fn prefilled(report: &BenchReport) -> Vec<Series> {
    let point = |tokens: usize| (tokens as f64, [tokens as f64; 2]);
    series(report, &|mode| point(mode.prefilled), &|peer| point(peer.prefilled))
}

type Point = (f64, [f64; 2]);

fn series(
    report: &BenchReport,
    ours: &dyn Fn(&ModeTiming) -> Point,
    peers: &dyn Fn(&PeerTiming) -> Point,
) -> Vec<Series> {
    let mut all = BTreeMap::<String, Vec<(f64, f64, [f64; 2])>>::new();
    for workload in &report.workloads {
        let tokens = workload.skill_tokens as f64;
        let ours = workload.ours.iter().map(|(name, mode)| (format!("our {name}"), ours(mode)));
        let peers = workload.peers.iter().map(|(name, peer)| (name.clone(), peers(peer)));
        for (name, (y, interval)) in ours.chain(peers) {
            all.entry(name).or_default().push((tokens, y, interval));
        }
    }
    // Where there are lines, what was measured once is in the table only.
    let n_points = if all.values().any(|points| points.len() > 1) { 2 } else { 1 };
    all.into_iter()
        .filter(|(_, points)| points.len() >= n_points)
        .map(|(name, mut points)| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name, points, has_marks: true }
        })
        .collect()
}
