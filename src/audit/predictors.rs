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
    /// The seeds in the order of their times, and their numbers in the task.
    pub seeds: Vec<Seed>,
    pub seed_indices: Vec<u32>,
    pub target: Target,
}

impl Sample<'_> {
    /// Whether the target is a cell of the seed row.
    pub(super) fn is_cell(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether a table is named because so many of the seeds see a row of it too early.
    pub(super) fn are_many(&self, seeds: usize) -> bool {
        const SHARE_MIN: f64 = 0.01;
        const SEEDS_MIN: usize = 10;
        seeds >= SEEDS_MIN && seeds as f64 >= SHARE_MIN * self.seeds.len() as f64
    }
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
    /// None for the rows themselves.
    column: Option<u32>,
    way: Way,
    score: Score,
}

/// How the rows at the end of a path become one value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Latest,
    Mean,
    /// How many there are.
    Count,
    /// Whether there are any.
    Exists,
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
    let mut named: Vec<(Option<usize>, u32, Option<u32>)> = Vec::new();
    scored.retain(|one| {
        // The rows themselves are others on each path.
        let path = one.column.is_none().then_some(one.path);
        let subject = (path, one.table, one.column);
        let is_new = !named.contains(&subject);
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
    let mut add = |column, way, score: Option<Score>| {
        let named = |score| Predictor { path: place, table: path.table, column, way, score };
        scored.extend(score.map(named));
    };
    // Without a row there is no value: that is told once, not by each column.
    let reached: Vec<usize> =
        (0..found.len()).filter(|&seed| !found[seed].rows.is_empty()).collect();
    let target = sample.target.at(&reached);
    let rows: Vec<[u32; 2]> =
        reached.iter().map(|&seed| [sample.seeds[seed].row, found[seed].rows[0]]).collect();
    for (number, column) in (0..).zip(&table.metadata().columns) {
        if path.steps.is_empty() && sample.hidden.contains(&number) {
            continue;
        }
        let cells =
            Cells { sample, table, column, number: number as usize, found, reached: &reached };
        for way in [Way::Latest, Way::Mean, Way::SameTime] {
            let is_one = way == Way::Latest;
            if (is_one || path.is_many())
                && let Some(values) = cells.values(way)?
            {
                // Distances of time are alike by chance, where seeds are observed at regular times.
                let is_time = column.semantic() == SemanticType::Timestamp;
                let rows = (is_one && !is_time).then_some(&rows[..]);
                add(Some(number), way, score(&target, &values, rows));
            }
        }
    }
    if !path.steps.is_empty() {
        let exists = found.iter().map(|found| f64::from(u8::from(found.visible > 0)));
        let rows: Vec<_> = sample.seeds.iter().map(|seed| [seed.row; 2]).collect();
        let exists = score(&sample.target, &Values::Code(exists.collect()), Some(&rows));
        add(None, Way::Exists, exists);
    }
    if path.is_many() {
        let counts = found.iter().map(|found| found.visible as f64).collect();
        add(None, Way::Count, score(&sample.target, &Values::Number(counts), None));
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
    /// The seeds that see a row.
    reached: &'a [usize],
}

impl Cells<'_> {
    /// Returns a value for each seed that sees a row; none where the column has none of this kind.
    fn values(&self, way: Way) -> Result<Option<Values>> {
        let is_code = matches!(
            self.column.semantic(),
            SemanticType::Categorical | SemanticType::Text | SemanticType::Identifier
        );
        if way != Way::Latest && is_code {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(self.reached.len());
        for &seed in self.reached {
            let (found, seed) = (&self.found[seed], &self.sample.seeds[seed]);
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
            Way::Exists => return format!("the existence of {}", path.words(sample.store)),
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

    fn is_identifier(&self, sample: &Sample<'_>) -> bool {
        let table = &sample.store.metadata().tables[self.table as usize];
        let column = self.column.map(|column| &table.columns[column as usize]);
        column.is_some_and(|column| column.semantic() == SemanticType::Identifier)
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
        let remedy = if is_own && sample.is_cell() {
            let column = subject.rsplit('.').next().unwrap_or_default();
            format!("hide it with the target: hide = [{column:?}] in the task")
        } else if self.column.is_none() {
            let time = match sample.store.metadata().tables[self.table as usize].time {
                None => "give the table the time at which its rows are known",
                Some(_) => "if its rows are known later than their time, give that time a delay",
            };
            // Such as the chance of a fourth order, of which three earlier ones tell.
            format!(
                "{time}; if they are known and the target follows from how many there are, that is no \
                 leak: accept {subject}"
            )
        } else if self.is_identifier(sample) {
            "ignore it; if it is a reference that is known later than its row, put it into a table \
             of its own, with the time at which it is known"
                .to_owned()
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
