//! Columns that predict a target alone: each column of the rows within two links of a seed is scored.

use super::path::{Found, Path};
use super::score::{Measure, Score, Target, Values, score};
use super::{Finding, Kind, Shares};
use crate::error::Result;
use crate::store::{Cell, ColumnMetadata, Row, SEES_EVERYTHING, Seed, SemanticType, Store, Table};

/// The score from which a column is named.
const THRESHOLD: f64 = 0.95;
/// The score from which a column is a copy of the target.
const COPY: f64 = 0.9999;

/// A task, with the seeds that are looked at.
pub(super) struct Sample<'a> {
    pub store: &'a Store,
    pub task: String,
    pub anchor: u32,
    /// The columns that the seed row hides, the target first; none for a derived task.
    pub hidden: Vec<u32>,
    pub seeds: Vec<Seed>,
    pub target: Target,
}

/// The columns that predict the target of a task alone.
pub(super) struct Predictors {
    pub findings: Vec<Finding>,
    /// For each path: its words, and how many rows it shows and hides.
    pub shares: Vec<Shares>,
    /// The best column, in words, and its score.
    pub best: Option<(String, Score)>,
}

/// A column at the end of a path, and its score.
struct Predictor {
    path: usize,
    table: u32,
    /// None for the number of rows.
    column: Option<u32>,
    way: Way,
    score: Score,
}

/// How the rows at the end of a path become one value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Latest,
    Mean,
    Count,
    /// The mean over the rows of the observation's own moment.
    SameTime,
}

/// Scores every column of the rows within two links of the seeds.
pub(super) fn predictors(
    sample: &Sample<'_>,
    advance: &dyn Fn(u64) -> Result<()>,
) -> Result<Predictors> {
    let store = sample.store;
    let paths = Path::all_from(store, sample.anchor);
    let (mut scored, mut shares) = (Vec::new(), Vec::new());
    for (place, path) in paths.iter().enumerate() {
        let follow = |seed| path.follow(store, sample.anchor, seed);
        let found = sample.seeds.iter().map(follow).collect::<Result<Vec<_>>>()?;
        if !path.steps.is_empty() {
            shares.push(Shares {
                path: path.words(store),
                links: path.steps.len(),
                visible: found.iter().map(|found| found.visible).sum(),
                hidden: found.iter().map(|found| found.hidden).sum(),
            });
        }
        scored.extend(score_path(sample, (place, path), &found)?);
        advance(1)?;
    }
    // Of the paths to a column with equal scores, the first, which is the shortest.
    scored.sort_by(|a, b| b.score.value.total_cmp(&a.score.value).then(a.path.cmp(&b.path)));
    let mut named: Vec<Option<(u32, u32)>> = Vec::new();
    scored.retain(|one| {
        let subject = one.column.map(|column| (one.table, column));
        let is_new = subject.is_none() || !named.contains(&subject);
        named.push(subject);
        is_new
    });
    let best = scored.first().map(|one| (one.words(sample, &paths), one.score));
    let over = scored.iter().filter(|one| one.score.value >= THRESHOLD);
    let findings = over.map(|one| one.finding(sample, &paths)).collect();
    Ok(Predictors { findings, shares, best })
}

/// Returns the number of steps of [`predictors`] for a task's anchor table.
pub(super) fn step_count(store: &Store, anchor: u32) -> u64 {
    Path::all_from(store, anchor).len() as u64
}

fn score_path(
    sample: &Sample<'_>,
    (place, path): (usize, &Path),
    found: &[Found],
) -> Result<Vec<Predictor>> {
    let table = &sample.store.tables()[path.table as usize];
    let mut scored = Vec::new();
    let mut add = |column, way, values: &Values| {
        if let Some(score) = score(&sample.target, values) {
            scored.push(Predictor { path: place, table: path.table, column, way, score });
        }
    };
    for (number, column) in (0..).zip(&table.metadata().columns) {
        if path.steps.is_empty() && sample.hidden.contains(&number) {
            continue;
        }
        let cells = Cells { sample, table, column, number: number as usize, found };
        for way in [Way::Latest, Way::Mean, Way::SameTime] {
            let is_one = way == Way::Latest;
            if (is_one || path.is_many())
                && let Some(values) = cells.values(way)?
            {
                add(Some(number), way, &values);
            }
        }
    }
    if path.is_many() {
        let counts = found.iter().map(|found| found.visible as f64).collect();
        add(None, Way::Count, &Values::Number(counts));
    }
    Ok(scored)
}

/// The cells of one column in the rows that each seed sees.
struct Cells<'a> {
    sample: &'a Sample<'a>,
    table: &'a Table,
    column: &'a ColumnMetadata,
    number: usize,
    found: &'a [Found],
}

impl Cells<'_> {
    /// Returns a value for each seed; none where the column has none of this kind.
    fn values(&self, way: Way) -> Result<Option<Values>> {
        let is_code = matches!(
            self.column.semantic(),
            SemanticType::Categorical | SemanticType::Text | SemanticType::Identifier
        );
        if way != Way::Latest && is_code {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(self.found.len());
        for (found, seed) in self.found.iter().zip(&self.sample.seeds) {
            values.push(match way {
                Way::Latest => self.first(found, seed)?,
                _ => self.mean(found, seed, way == Way::SameTime)?,
            });
        }
        if values.iter().all(|value| value.is_nan()) {
            return Ok(None);
        }
        Ok(Some(if is_code { Values::Code(values) } else { Values::Number(values) }))
    }

    fn first(&self, found: &Found, seed: &Seed) -> Result<f64> {
        match found.rows.first() {
            Some(&row) => Ok(self.value(&self.table.row(row)?, seed)),
            None => Ok(f64::NAN),
        }
    }

    /// Returns the mean over the rows, or over those that came to be known at the observation time.
    fn mean(&self, found: &Found, seed: &Seed, is_same_time: bool) -> Result<f64> {
        let (mut sum, mut count) = (0.0, 0);
        for &row in &found.rows {
            let record = self.table.row(row)?;
            let value = self.value(&record, seed);
            if !value.is_nan() && (!is_same_time || record.time() == seed.obs_time) {
                sum += value;
                count += 1;
            }
        }
        Ok(if count == 0 { f64::NAN } else { sum / f64::from(count) })
    }

    /// Returns the cell as a context has it: NULL before it is known.
    fn value(&self, record: &Row<'_>, seed: &Seed) -> f64 {
        match record.cell_known_at(self.number, seed.obs_time) {
            Cell::Null => f64::NAN,
            Cell::Identifier => 0.0,
            Cell::Numerical(score) => f64::from(score),
            Cell::Boolean(truth) => f64::from(u8::from(truth)),
            Cell::Categorical(code) | Cell::Text(code) => f64::from(code),
            // A time after the observation is not known yet; one before it counts by its distance.
            Cell::Timestamp(time) if time > seed.obs_time => f64::NAN,
            Cell::Timestamp(time) if seed.obs_time == SEES_EVERYTHING => time as f64,
            Cell::Timestamp(time) => seed.obs_time.saturating_sub(time) as f64,
        }
    }
}

impl Predictor {
    /// Returns the column and the rows in words: `results.points (other results of the parent by race)`.
    fn words(&self, sample: &Sample<'_>, paths: &[Path]) -> String {
        let path = &paths[self.path];
        let of = match self.way {
            _ if path.steps.is_empty() => return self.subject(sample),
            Way::Count => return format!("the number of {}", path.words(sample.store)),
            Way::Latest if path.is_many() => "the latest of ",
            Way::Latest => "",
            Way::Mean => "the mean of ",
            Way::SameTime => "the mean, at the same time, of ",
        };
        format!("{} ({of}{})", self.subject(sample), path.words(sample.store))
    }

    fn subject(&self, sample: &Sample<'_>) -> String {
        let table = &sample.store.metadata().tables[self.table as usize];
        match self.column {
            Some(column) => format!("{}.{}", table.name, table.columns[column as usize].name),
            None => table.name.clone(),
        }
    }

    fn finding(&self, sample: &Sample<'_>, paths: &[Path]) -> Finding {
        let Score { seeds, by_null, .. } = self.score;
        let words = self.words(sample, paths);
        let is_own = paths[self.path].steps.is_empty();
        let is_copy = self.score.value >= COPY && self.score.measure != Measure::Always;
        let how = match (by_null, is_copy) {
            (true, _) => "whether it is NULL predicts the target alone",
            (false, true) => "it is a copy of the target",
            (false, false) => "it predicts the target alone",
        };
        let subject = self.subject(sample);
        let evidence = format!("{words}: {how}, {} over {seeds} seeds", self.score.words());
        let remedy = if is_own && !sample.hidden.is_empty() {
            let column = subject.rsplit('.').next().unwrap_or_default();
            format!("hide it with the target: hide = [{column:?}] in the task")
        } else if self.column.is_none() {
            "give the table the time at which its rows are known, or a delay".to_owned()
        } else if self.way == Way::SameTime {
            "rows of the same time are visible: give their table a delay, or the column \
             known = { delay = \"...\" }"
                .to_owned()
        } else {
            "if it is known later than its row, say when: known = { at = \"...\" } or \
             { delay = \"...\" }; if it never is, ignore it"
                .to_owned()
        };
        Finding {
            kind: Kind::PredictsTarget,
            task: Some(sample.task.clone()),
            subject,
            evidence,
            remedy,
        }
    }
}

impl Score {
    /// Returns the score in words.
    pub(super) fn words(&self) -> String {
        match self.measure {
            Measure::Auroc => format!("AUROC {:.3}", self.value),
            Measure::RankCorrelation => format!("rank correlation {:.3}", self.value),
            Measure::ClassesPredicted => {
                format!(
                    "{:.1} % of the labels that the most frequent class misses",
                    self.value * 100.0
                )
            }
            Measure::Always => "one value of it always comes with the rarer label".to_owned(),
        }
    }
}
