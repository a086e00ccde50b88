//! Each way into the commands, with small data.

use std::path::Path;

use crate::given::{
    HEADWATER, REDUCE, compressed_csv, csv, cursor, draft, empty, event_store, folded, large_csv,
    large_matrix, large_parquet, large_pings, large_sqlite, matrix, old_store, page, parquet,
    parts, pings, prepared, spool, sqlite, store, summary, worked,
};

/// A command in a folder, and what it makes there.
pub(crate) struct Entrance {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    /// Its words, between spaces.
    pub(crate) command: &'static str,
    /// Writes the files that the command is given.
    pub(crate) given: fn(&Path),
    /// The files and folders that it writes, each at once; those in a folder whose name ends in `/` one by
    /// one.
    pub(crate) outputs: &'static [&'static str],
    /// The command to run after one that failed.
    pub(crate) again: &'static str,
    /// What it says, without what differs from run to run.
    pub(crate) said: fn(&str) -> String,
    /// What it says instead where there is no memory for a part of its work.
    pub(crate) excuse: Option<&'static str>,
    /// Whether it must fail, because it would replace a file of the user's.
    pub(crate) is_refused: bool,
    /// Whether it writes to its outputs themselves, which are made again after a failure.
    pub(crate) in_place: bool,
}

/// An allocation of more than 1 MiB depends on the data, and never ends the process: fixed buffers are as
/// large at most.
pub(crate) const LARGE: u64 = (1 << 20) + 1;

impl Entrance {
    const fn new(
        name: &'static str,
        program: &'static str,
        command: &'static str,
        given: fn(&Path),
    ) -> Self {
        Self {
            name,
            program,
            command,
            given,
            outputs: &[],
            again: command,
            said: str::to_owned,
            excuse: None,
            is_refused: false,
            in_place: false,
        }
    }

    const fn makes(mut self, outputs: &'static [&'static str]) -> Self {
        self.outputs = outputs;
        self
    }

    const fn then(mut self, again: &'static str) -> Self {
        self.again = again;
        self
    }

    const fn says(mut self, said: fn(&str) -> String) -> Self {
        self.said = said;
        self
    }

    const fn or_says(mut self, excuse: &'static str) -> Self {
        self.excuse = Some(excuse);
        self
    }

    const fn refused(mut self) -> Self {
        self.is_refused = true;
        self
    }

    const fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }
}

/// Without the time that it took.
fn untimed(said: &str) -> String {
    let lines = said.lines().map(|line| line.rsplit_once(" in ").map_or(line, |(start, _)| start));
    lines.collect::<Vec<_>>().join("\n")
}

/// Figures of speed alone.
fn nothing(_: &str) -> String {
    String::new()
}

/// JSON without measurements, and without what tells a run that was continued from one that was not.
fn unmeasured(said: &str) -> String {
    const VARYING: [&str; 7] = [
        "seconds",
        "cpu_seconds",
        "gflops",
        "resumed_nodes",
        "resumed_blocks",
        "command",
        "cursors",
    ];
    let reduced = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).ok()?;
        VARYING.iter().for_each(|name| drop(value.as_object_mut().map(|o| o.remove(*name))));
        Some(value.to_string())
    };
    let by_line = || said.lines().map(|line| reduced(line).unwrap_or_else(|| line.to_owned()));
    reduced(said).unwrap_or_else(|| by_line().collect())
}

pub(crate) const PREPARE: &str =
    "prepare data --schema schema.toml --out db --dimension 8 --threads 1";
const FORCE: &str = "prepare data --schema schema.toml --out db --dimension 8 --threads 1 --force";
pub(crate) const EVENTS: &str = "prepare pings.csv --schema events.toml --out pings.db --threads 1";
const EVENTS_FORCE: &str =
    "prepare pings.csv --schema events.toml --out pings.db --threads 1 --force";
pub(crate) const GRAM: &str =
    "gram --input x.npy --out g.npy --chunk-rows 8 --threads 1 --checkpoint-dir ck";
const GRAM_RESUMED: &str =
    "gram --input x.npy --out g.npy --chunk-rows 8 --threads 1 --checkpoint-dir ck --resume";
const GRAM_OUTPUTS: &[&str] = &["g.npy", "g.json", "ck/"];

pub(crate) const ENTRANCES: &[Entrance] = &[
    Entrance::new("schema of CSV", HEADWATER, "schema data --out draft.toml", csv)
        .makes(&["draft.toml"]),
    Entrance::new("schema of parts", HEADWATER, "schema data", parts),
    Entrance::new("schema over a draft", HEADWATER, "schema data --out draft.toml", draft)
        .refused(),
    Entrance::new("gram over a file", REDUCE, "gram --input x.npy --out g.npy", summary).refused(),
    Entrance::new("spool over a job", REDUCE, "gram --input x.npy --chunk-rows 4 --spool S", spool)
        .refused(),
    Entrance::new(
        "prepare in a store",
        HEADWATER,
        "prepare data --schema schema.toml --out old/db --dimension 8 --threads 1",
        prepared,
    )
    .refused(),
    Entrance::new("schema of Parquet", HEADWATER, "schema x.parquet", parquet),
    Entrance::new("schema of SQLite", HEADWATER, "schema shop.sqlite", sqlite),
    Entrance::new("prepare of CSV", HEADWATER, PREPARE, csv)
        .makes(&["db"])
        .then(FORCE)
        .says(untimed),
    Entrance::new("prepare of CSV, compressed", HEADWATER, PREPARE, compressed_csv)
        .makes(&["db"])
        .then(FORCE)
        .says(untimed),
    Entrance::new("prepare --force", HEADWATER, FORCE, old_store).makes(&["db"]).says(untimed),
    Entrance::new(
        "prepare of Parquet",
        HEADWATER,
        "prepare x.parquet --schema x.toml --out db --threads 1 --force",
        parquet,
    )
    .makes(&["db"])
    .says(untimed),
    Entrance::new(
        "prepare of SQLite",
        HEADWATER,
        "prepare shop.sqlite --schema schema.toml --out db --dimension 8 --threads 1 --force",
        sqlite,
    )
    .makes(&["db"])
    .says(untimed),
    Entrance::new("prepare of events", HEADWATER, EVENTS, pings)
        .makes(&["pings.db"])
        .then(EVENTS_FORCE)
        .says(untimed),
    Entrance::new("demo-data", HEADWATER, "demo-data shop", empty).makes(&["shop/"]).in_place(),
    Entrance::new("verify", HEADWATER, "verify store", store),
    Entrance::new("warm", HEADWATER, "warm store", store),
    Entrance::new("warm events", HEADWATER, "warm store", event_store),
    Entrance::new("stage", HEADWATER, "stage store copy", store).makes(&["copy"]),
    Entrance::new("inspect", HEADWATER, "inspect store", store),
    Entrance::new(
        "inspect --html",
        HEADWATER,
        "inspect store --task churn --seed-index 0 --html page.html",
        page,
    )
    .makes(&["page.html"]),
    Entrance::new("inspect of events", HEADWATER, "inspect store --token-row 0", event_store),
    Entrance::new("audit", HEADWATER, "audit store --seeds 100", store)
        .or_says("the replay (cannot allocate"),
    Entrance::new("bench", HEADWATER, "bench store --batches 2 --threads 1 --batch-size 4", store)
        .says(nothing),
    Entrance::new("cursor", HEADWATER, "cursor a.cursor", cursor),
    Entrance::new("gram", REDUCE, GRAM, matrix)
        .makes(GRAM_OUTPUTS)
        .then(GRAM_RESUMED)
        .says(unmeasured),
    Entrance::new("gram --resume", REDUCE, GRAM_RESUMED, folded)
        .makes(GRAM_OUTPUTS)
        .says(unmeasured),
    Entrance::new(
        "gram of Parquet",
        REDUCE,
        "gram --input x.parquet --select a b --out g.npy --threads 1 --chunk-rows 8",
        parquet,
    )
    .makes(&["g.npy", "g.json"])
    .says(unmeasured),
    Entrance::new(
        "moments",
        REDUCE,
        "moments --input x.parquet --select a b --out m.json --threads 1 --chunk-rows 8",
        parquet,
    )
    .makes(&["m.json"])
    .says(unmeasured),
    Entrance::new(
        "histogram",
        REDUCE,
        "histogram --input x.npy --out s.json --edges 0 1 2 --threads 1 --chunk-rows 8",
        matrix,
    )
    .makes(&["s.json"])
    .says(unmeasured),
    Entrance::new(
        "exponents",
        REDUCE,
        "exponents --input x.npy --out s.json --threads 1 --chunk-rows 8",
        matrix,
    )
    .makes(&["s.json"])
    .says(unmeasured),
    Entrance::new(
        "distinct",
        REDUCE,
        "distinct --input x.npy --out s.json --threads 1 --chunk-rows 8",
        matrix,
    )
    .makes(&["s.json"])
    .says(unmeasured),
    Entrance::new(
        "top",
        REDUCE,
        "top --input x.npy --out s.json --column 1 --threads 1 --chunk-rows 8",
        matrix,
    )
    .makes(&["s.json"])
    .says(unmeasured),
    Entrance::new(
        "exact",
        REDUCE,
        "exact --input x.npy --out s.json --threads 1 --chunk-rows 8",
        matrix,
    )
    .makes(&["s.json"])
    .says(unmeasured),
    Entrance::new(
        "cross",
        REDUCE,
        "cross --input x.npy --with x.npy --out c.npy --threads 1 --chunk-rows 8",
        matrix,
    )
    .makes(&["c.npy", "c.json"])
    .says(unmeasured),
    Entrance::new("manifest", REDUCE, "manifest --input x.npy --out x.json", matrix)
        .makes(&["x.json"])
        .says(unmeasured),
    Entrance::new("gram --spool", REDUCE, "gram --input x.npy --chunk-rows 8 --spool S", matrix)
        .makes(&["S/"])
        .says(unmeasured),
    Entrance::new("work", REDUCE, "work --spool S --rank 0 --of 1 --threads 1", spool)
        .makes(&["S/"])
        .says(unmeasured),
    Entrance::new("fold", REDUCE, "fold --spool S --out g.npy", worked)
        .makes(&["g.npy", "g.json"])
        .says(unmeasured),
];

#[cfg(feature = "arrayrecord")]
pub(crate) const EXPORTS: &[Entrance] =
    &[Entrance::new("export", HEADWATER, "export store --out rows", event_store).makes(&["rows"])];
#[cfg(not(feature = "arrayrecord"))]
pub(crate) const EXPORTS: &[Entrance] = &[];

/// Entrances whose data need large allocations.
pub(crate) const LARGE_ENTRANCES: &[Entrance] = &[
    Entrance::new("schema of CSV, large", HEADWATER, "schema data", large_csv),
    Entrance::new("prepare of CSV, large", HEADWATER, PREPARE, large_csv)
        .makes(&["db"])
        .then(FORCE)
        .says(untimed),
    Entrance::new(
        "prepare of Parquet, large",
        HEADWATER,
        "prepare x.parquet --schema x.toml --out db --threads 1 --force",
        large_parquet,
    )
    .makes(&["db"])
    .says(untimed),
    Entrance::new(
        "prepare of SQLite, large",
        HEADWATER,
        "prepare shop.sqlite --schema schema.toml --out db --dimension 8 --threads 1 --force",
        large_sqlite,
    )
    .makes(&["db"])
    .says(untimed),
    Entrance::new("prepare of events, large", HEADWATER, EVENTS, large_pings)
        .makes(&["pings.db"])
        .then(EVENTS_FORCE)
        .says(untimed),
    Entrance::new(
        "bench, large",
        HEADWATER,
        "bench store --batches 2 --threads 1 --batch-size 64 --sequence-length 4096",
        store,
    )
    .says(nothing),
    Entrance::new(
        "gram, large",
        REDUCE,
        "gram --input x.npy --out g.npy --threads 1 --chunk-rows 64 --checkpoint-dir ck --resume",
        large_matrix,
    )
    .makes(GRAM_OUTPUTS)
    .says(unmeasured),
    Entrance::new(
        "gram of Parquet, large",
        REDUCE,
        "gram --input x.parquet --select a b --out g.npy --threads 1",
        large_parquet,
    )
    .makes(&["g.npy", "g.json"])
    .says(unmeasured),
];
