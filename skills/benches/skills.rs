//! How long it takes to find, read and search skills.
//!
//! `cargo bench -p skillgraft-skills` prints medians; under `cargo test` each
//! measurement runs once, on little data. The floor is what any program must do:
//! walk the folders with `walkdir` and read the same files with `fs::read`, in the
//! same run. Files are in the page cache; *cold* is a scanner that knows nothing,
//! *warm* one that has scanned before.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints what it measures and may panic"
)]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use skillgraft_skills::{
    Bm25Chooser, Catalog, CatalogFormat, Root, ScanOptions, Scanner, SearchText, catalog_budget,
};
use walkdir::WalkDir;

/// How much is measured.
struct Size {
    n_rounds: usize,
    n_generated: usize,
}

fn main() {
    // A test runner asks for the tests: there are none, running it is the test.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let size = if is_bench {
        Size { n_rounds: 21, n_generated: 10_000 }
    } else {
        Size { n_rounds: 1, n_generated: 50 }
    };
    let shared = std::env::var_os("SKILLGRAFT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let corpus = shared.join("corpus");
    if corpus.is_dir() {
        folder("corpus", &corpus, size.n_rounds, is_bench);
    } else {
        eprintln!("SKIPPED: the skill corpus is not here");
    }
    let generated = generate(size.n_generated);
    let catalog = folder("generated", generated.path(), size.n_rounds.min(5), is_bench);
    assert_eq!(catalog.len(), size.n_generated);
    search(&catalog, size.n_rounds);
    render(&catalog, size.n_rounds);
}

/// Skills with words of their own and words in common.
fn generate(n: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let word = |seed: usize| -> String {
        let syllables = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"];
        (0..4).map(|place| syllables[seed / 10_usize.pow(place) % 10]).collect()
    };
    for at in 0..n {
        let topic: Vec<String> = (1..7).map(|k| word((at * 37 + k * 811) % 3000)).collect();
        let text = format!(
            "---\nname: {name}-{at}\ndescription: Helps with {topic} for a project. Use when the \
             user asks about {name} or reports on {other}.\nlicense: MIT\n---\n# {name}\n\n{body}",
            name = word(at % 9000),
            topic = topic.join(" "),
            other = topic[0],
            body = "Read the settings, then check each step of the list.\n".repeat(12),
        );
        let skill = folder.path().join(format!("group-{}/{}-{at}", at / 100, word(at % 9000)));
        fs::create_dir_all(&skill).unwrap();
        fs::write(skill.join("SKILL.md"), text).unwrap();
    }
    folder
}

fn folder(what: &str, root: &Path, n_rounds: usize, is_bench: bool) -> Catalog {
    if is_bench {
        // A scanner trusts no stamp that is younger than the clock's step.
        std::thread::sleep(Duration::from_secs(4));
    }
    let scanner = || Scanner::new(vec![Root::given(root)], ScanOptions::default());
    let peak = Peak::start();
    let catalog = scanner().scan().unwrap();
    let peak = peak.end();
    let n_bytes: usize = catalog.skills().iter().map(|s| s.body.len() + s.front_matter.len()).sum();
    println!(
        "{what}: {} skills, {} findings, {:.1} MB of text",
        catalog.len(),
        catalog.diagnostics().len(),
        n_bytes as f64 / 1e6
    );
    let floor = median(n_rounds, || {
        black_box(read_plainly(root));
    });
    let cold = median(n_rounds, || {
        black_box(scanner().scan().unwrap());
    });
    let mut known = scanner();
    known.scan().unwrap();
    let warm = median(n_rounds, || {
        black_box(known.scan().unwrap());
    });
    let read = known.n_read();
    println!("  floor (walkdir + fs::read)  {floor:>9.2?}");
    println!("  cold                        {cold:>9.2?}  {:.2} of the floor", ratio(cold, floor));
    println!(
        "  warm, {read} files read         {warm:>9.2?}  {:.2} of the floor",
        ratio(warm, floor)
    );
    println!("  peak memory added           {peak}");
    catalog
}

/// Reads the files that a scan reads.
fn read_plainly(root: &Path) -> usize {
    let entries = WalkDir::new(root).into_iter().filter_entry(|entry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name.starts_with('.') || name == "node_modules")
    });
    let mut n_bytes = 0;
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_name() == "SKILL.md" && entry.file_type().is_file() {
            n_bytes += fs::read(entry.path()).unwrap().len();
        }
    }
    n_bytes
}

fn search(catalog: &Catalog, n_rounds: usize) {
    for (what, text) in [("cards", SearchText::Description), ("full text", SearchText::Full)] {
        let build = median(n_rounds.min(5), || {
            black_box(Bm25Chooser::with(catalog, text, 0.5));
        });
        let chooser = Bm25Chooser::with(catalog, text, 0.5);
        println!("search in {what} of {} skills: index {build:.2?}", catalog.len());
        let words: Vec<&str> = catalog.skills()[7].description.split_whitespace().collect();
        let rare = format!("{} {} {}", words[2], words[3], words[4]);
        let common = "helps with a project when the user asks about reports";
        for (kind, request) in [("rare words", rare.as_str()), ("words of all", common)] {
            let time = median(n_rounds, || {
                black_box(chooser.search(request, 5));
            });
            println!("  {kind:<14} {time:>9.2?}  {} found", chooser.search(request, 5).len());
        }
    }
}

fn render(catalog: &Catalog, n_rounds: usize) {
    let count = |text: &str| text.len().div_ceil(4);
    let budget = catalog_budget(32_768);
    let time = median(n_rounds, || {
        black_box(catalog.render_within(CatalogFormat::Lines, budget, &count));
    });
    let rendered = catalog.render_within(CatalogFormat::Lines, budget, &count);
    println!("catalog in {budget} tokens: {time:.2?}; {rendered}");
}

fn median(n_rounds: usize, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..n_rounds)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// What some work adds to the process's memory at most, where Linux tells.
struct Peak(Option<u64>);

impl Peak {
    fn start() -> Self {
        let is_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
        Peak(field("VmRSS:").filter(|_| is_reset))
    }

    fn end(self) -> String {
        match (self.0, field("VmHWM:")) {
            (Some(before), Some(peak)) => format!("{:.1} MB", (peak - before) as f64 / 1e3),
            _ => "unknown".to_owned(),
        }
    }
}

fn field(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
