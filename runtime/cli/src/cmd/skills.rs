//! `skillgraft skills`: what skills there are, and whether they are in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use skillgraft::engine::Model;
use skillgraft::models::{ModelChoice, ModelStore};
use skillgraft::skills::{
    Activation, Bm25Chooser, Catalog, CatalogFormat, DEFAULT_EVIDENCE_MIN, Diagnostic, Error,
    ImportLimits, SearchText, Skill, SkillIdx, Window, import,
};
use skillgraft::{Settings, StopFlag};

use super::SkillArgs;
use crate::ui::Ui;

mod check;

/// Subcommands of `skillgraft skills`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the skills that would be loaded.
    List {
        #[command(flatten)]
        at: SkillArgs,
        /// Count tokens with this model [default: the usual one, when it has been fetched].
        #[arg(long, value_name = "ID|FILE")]
        model: Option<String>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show what the activation of a skill gives, or one of its files.
    Show {
        /// A skill, or `skill/path` for a file of it.
        name: String,
        #[command(flatten)]
        at: SkillArgs,
        /// Count tokens with this model [default: the usual one, when it has been fetched].
        #[arg(long, value_name = "ID|FILE")]
        model: Option<String>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check skills as a compiler checks programs.
    Check(check::Args),
    /// Search names, descriptions and bodies.
    Search {
        /// What is looked for, in words.
        query: String,
        #[command(flatten)]
        at: SkillArgs,
        /// The most skills to show.
        #[arg(long, value_name = "N", default_value_t = 5)]
        limit: usize,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Take skills from a folder or a zip archive.
    Add {
        /// The folder or archive.
        source: PathBuf,
        /// The folder of skills to put them in [default: the user's own].
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// A skill in the JSON of `list` and `show`.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    description: &'a str,
    path: &'a Path,
    root: &'a Path,
    digest: String,
    /// `null` without the model's tokenizer.
    catalog_tokens: Option<usize>,
    body_tokens: Option<usize>,
    files: Vec<String>,
    diagnostics: Vec<&'a Diagnostic>,
}

#[derive(Serialize)]
struct Omitted<'a> {
    path: &'a Path,
    code: skillgraft::skills::Code,
    message: &'a str,
}

#[derive(Serialize)]
struct List<'a> {
    skills: Vec<Row<'a>>,
    omitted: Vec<Omitted<'a>>,
    catalog_tokens: Option<usize>,
}

#[derive(Serialize)]
struct Show<'a> {
    #[serde(flatten)]
    row: Row<'a>,
    license: Option<&'a str>,
    compatibility: Option<&'a str>,
    allowed_tools: &'a [String],
    inner: &'a [String],
    body: &'a str,
}

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    path: &'a str,
    text: &'a str,
    n_lines: usize,
}

#[derive(Serialize)]
struct Found<'a> {
    query: &'a str,
    matches: Vec<Hit<'a>>,
}

#[derive(Serialize)]
struct Hit<'a> {
    name: &'a str,
    score: f32,
    /// Whether the runtime would load it for this request.
    fits: bool,
    path: &'a Path,
    line: Option<u32>,
    heading: Option<String>,
    words: Vec<String>,
}

#[derive(Serialize)]
struct Added<'a> {
    skills: Vec<Place<'a>>,
    diagnostics: &'a [Diagnostic],
}

#[derive(Serialize)]
struct Place<'a> {
    name: &'a str,
    path: &'a Path,
}

pub(crate) fn run(command: Command, ui: &Ui, stop: &StopFlag) -> anyhow::Result<()> {
    match command {
        Command::List { at, model, json } => list(&at, model.as_deref(), json, ui, stop),
        Command::Show { name, at, model, json } => {
            show(&name, &at, model.as_deref(), json, ui, stop)
        }
        Command::Check(args) => check::run(&args, ui),
        Command::Search { query, at, limit, json } => search(&query, &at, limit, json, ui),
        Command::Add { source, into, json } => add(&source, into, json, ui),
    }
}

/// Counts tokens with a model's tokenizer, where there is one.
struct Counter(Option<Arc<Model>>);

impl Counter {
    /// Loads a model that is there; none is fetched for counting.
    fn open(model: Option<&str>, ui: &Ui, stop: &StopFlag) -> anyhow::Result<Self> {
        let mut settings = Settings::from_env()?;
        if let Some(model) = model {
            settings.model = ModelChoice::parse(model).map_err(skillgraft::Error::from)?;
        }
        let store = ModelStore::open(&settings.cache_dir).cancelled_by(stop.shared());
        let path = match &settings.model {
            ModelChoice::File(path) => Some(path.clone()),
            ModelChoice::Known(model) => store.locate(model.id).map_err(skillgraft::Error::from)?,
        };
        let Some(path) = path else {
            ui.line("tokens are not counted: no model has been fetched (`skillgraft model pull`)");
            return Ok(Counter(None));
        };
        let model = Model::load(&path, &settings.options).map_err(skillgraft::Error::from)?;
        Ok(Counter(Some(model)))
    }

    fn count(&self, text: &str) -> anyhow::Result<Option<usize>> {
        let Some(model) = &self.0 else { return Ok(None) };
        let tokens = model.tokenizer().encode_content(text).map_err(skillgraft::Error::from)?;
        Ok(Some(tokens.len()))
    }
}

fn row<'a>(
    catalog: &'a Catalog,
    skill: &'a Skill,
    activation: &Activation,
    counter: &Counter,
) -> anyhow::Result<Row<'a>> {
    let line = Catalog::from_skills(vec![skill.clone()]);
    let is_listed = skill.parent.is_none() && skill.invocable.by_model;
    let of_file = |finding: &&Diagnostic| finding.path == skill.file;
    Ok(Row {
        name: &skill.id,
        description: &skill.description,
        path: &skill.file,
        root: &skill.root,
        digest: skill.digest_hex(),
        catalog_tokens: if is_listed { counter.count(&line.render())? } else { Some(0) }
            .filter(|_| counter.0.is_some()),
        body_tokens: counter.count(&skill.body)?,
        files: activation.files.iter().map(|file| file.path.clone()).collect(),
        diagnostics: catalog.diagnostics().iter().filter(of_file).collect(),
    })
}

fn list(
    at: &SkillArgs,
    model: Option<&str>,
    json: bool,
    ui: &Ui,
    stop: &StopFlag,
) -> anyhow::Result<()> {
    let catalog = at.scan(ui)?;
    if !json {
        for skill in catalog.skills() {
            let description: String = skill.one_line_description().chars().take(80).collect();
            ui.data(&format!("{:<28} {description}\n", skill.id))?;
        }
        let warned = catalog.diagnostics().len() - catalog.omitted().count();
        if warned > 0 {
            ui.line(&format!("{warned} warnings: `skillgraft skills check DIR` shows them"));
        }
        return Ok(());
    }
    let counter = Counter::open(model, ui, stop)?;
    let mut skills = Vec::new();
    for (at, skill) in catalog.skills().iter().enumerate() {
        let activation = catalog.activation(SkillIdx(at)).map_err(skillgraft::Error::from)?;
        skills.push(row(&catalog, skill, &activation, &counter)?);
    }
    let omitted = catalog.omitted().map(|finding| Omitted {
        path: &finding.path,
        code: finding.code,
        message: &finding.message,
    });
    let catalog_tokens = counter.count(&catalog.render_as(CatalogFormat::Lines))?;
    ui.json(&List { skills, omitted: omitted.collect(), catalog_tokens })
}

fn show(
    name: &str,
    at: &SkillArgs,
    model: Option<&str>,
    json: bool,
    ui: &Ui,
    stop: &StopFlag,
) -> anyhow::Result<()> {
    let catalog = at.scan(ui)?;
    let found = catalog.locate(name).map_err(skillgraft::Error::from)?;
    let skill = catalog.get(found.skill);
    if let Some(path) = &found.path {
        let file = skill.read(path, Window::WHOLE).map_err(skillgraft::Error::from)?;
        if let Some(notice) = file.notice() {
            ui.line(&notice);
        }
        let (path, text, n_lines) = (file.path.as_str(), file.text.as_str(), file.n_lines);
        return if json {
            ui.json(&File { name: &skill.id, path, text, n_lines })
        } else {
            Ok(ui.data(text)?)
        };
    }
    let activation = catalog.activation(found.skill).map_err(skillgraft::Error::from)?;
    if !json {
        ui.field("skill", &skill.id);
        ui.field("about", &skill.one_line_description());
        ui.field("file", &skill.file.display().to_string());
        let listing = activation.listing();
        let gap = if listing.is_empty() { "" } else { "\n" };
        return Ok(ui.data(&format!("{}\n{gap}{listing}", skill.body.trim_end()))?);
    }
    let counter = Counter::open(model, ui, stop)?;
    ui.json(&Show {
        row: row(&catalog, skill, &activation, &counter)?,
        license: skill.license.as_deref(),
        compatibility: skill.compatibility.as_deref(),
        allowed_tools: &skill.allowed_tools,
        inner: &activation.inner,
        body: &skill.body,
    })
}

fn search(query: &str, at: &SkillArgs, limit: usize, json: bool, ui: &Ui) -> anyhow::Result<()> {
    let catalog = at.scan(ui)?;
    let chooser = Bm25Chooser::with(&catalog, SearchText::Full, DEFAULT_EVIDENCE_MIN);
    let matches = chooser.search(query, limit).into_iter().map(|found| {
        let skill = catalog.get(found.skill);
        Hit {
            name: &skill.id,
            score: found.score,
            fits: found.evidence >= DEFAULT_EVIDENCE_MIN,
            path: &skill.file,
            line: found.line,
            heading: found.heading,
            words: found.words,
        }
    });
    let matches: Vec<Hit<'_>> = matches.collect();
    if json {
        return ui.json(&Found { query, matches });
    }
    if matches.is_empty() {
        ui.line("no skill has a word of the query");
    }
    for hit in &matches {
        let place = hit.line.map_or_else(String::new, |line| format!(":{line}"));
        let words = hit.words.join(" ");
        let path = hit.path.display();
        ui.data(&format!("{:>5.2}  {:<28} {words}  {path}{place}\n", hit.score, hit.name))?;
    }
    Ok(())
}

fn add(source: &Path, into: Option<PathBuf>, json: bool, ui: &Ui) -> anyhow::Result<()> {
    let own = Settings::from_env()?.skills.places.config.map(|config| config.join("skills"));
    let into = into.or(own).ok_or(skillgraft::Error::from(Error::NoRoots))?;
    let added = import(source, &into, &ImportLimits::default());
    let added = added.map_err(|error| skillgraft::Error::from(Error::from(error)))?;
    for finding in &added.findings {
        ui.warning(&format!("{finding}. {}", finding.hint));
    }
    let place = |skill: &'_ Skill| (skill.id.clone(), skill.file.clone());
    let places: Vec<(String, PathBuf)> = added.skills.iter().map(place).collect();
    if json {
        let skills = places.iter().map(|(name, path)| Place { name, path }).collect();
        return ui.json(&Added { skills, diagnostics: &added.findings });
    }
    for (name, path) in places {
        ui.data(&format!("{name:<28} {}\n", path.display()))?;
    }
    Ok(())
}
