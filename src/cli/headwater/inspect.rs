//! `headwater inspect`: prints the content of a store, a row with its neighbours, or a context.

use std::sync::Arc;

use super::inspect_args::InspectArgs;
use super::inspect_events;
use super::named::{check_task, find_table, open_store};
use super::walk::walk;
use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::sampler::{Settings, Shape};
use crate::store::{
    ColumnMetadata, ColumnStats, EmbeddingMetadata, Kind, KnownMetadata, Scale, StatisticsUntil,
    Store, Table, TableMetadata, TaskMetadata, TextEncoding,
};
use crate::view::words::{bytes, count, plural, significant};
use crate::view::{ContextPicture, RowView, TaskView, time_text, time_words};

pub(super) fn run(args: &InspectArgs) -> Result<()> {
    if Kind::is_events(&args.store)? {
        return inspect_events::run(args);
    }
    if args.token_row.is_some() {
        return Err(Error::invalid(
            "expected a store of events for --token-row, found a store of tables; use --task and \
             --seed-index",
        ));
    }
    let store = open_store(&args.store)?;
    if let Some(task) = &args.task {
        return show_context(store, task, args);
    }
    let mut output = Output::new();
    match (&args.table, &args.row) {
        (Some(table), Some(row)) => {
            let table = find_table(&store, table)?;
            let view = RowView::of(&store, table, find_row(table, row)?)?;
            if args.json { output.json(&view) } else { print_row(&view, &mut output) }
        }
        (Some(table), None) => {
            let table = find_table(&store, table)?.metadata();
            if args.json { output.json(table) } else { print_table(&store, table, &mut output) }
        }
        (None, _) => {
            let tasks = store
                .tasks()
                .iter()
                .map(|t| TaskView::of(&store, t))
                .collect::<Result<Vec<_>>>()?;
            match args.json {
                true => output.json(&serde_json::json!({
                    "metadata": store.metadata(), "tasks": tasks, "bytes": store.file_bytes()
                })),
                false => print_store(&store, &tasks, &mut output),
            }
        }
    }
}

/// Shows the context of one seed, the first unless another is named.
fn show_context(store: Store, task: &str, args: &InspectArgs) -> Result<()> {
    if let Some(path) = &args.html {
        ContextPicture::check_place(path)?;
    }
    check_task(&store, task)?;
    let default = Settings::default();
    let max_rows = args.max_rows.unwrap_or(default.shape.max_rows);
    let settings = Settings {
        tasks: Some(vec![task.to_owned()]),
        walk: walk(args.child_width),
        shape: Shape { max_rows, ..default.shape },
        ..default
    };
    let seed_index = args.seed_index.unwrap_or(0);
    let picture = ContextPicture::new(vec![Arc::new(store)], settings, task, seed_index)?;
    let mut output = Output::new();
    if let Some(path) = &args.html {
        picture.write_page(path)?;
        let size = picture.view().size();
        return output.line(&format!("{}: {size}; open it in a browser", path.display()));
    }
    if args.json {
        output.json(picture.view())
    } else {
        output.line(picture.view().text().trim_end())
    }
}

/// Returns the row with a number (`#5`) or a key.
fn find_row(table: &Table, wanted: &str) -> Result<u32> {
    if let Some(number) = wanted.strip_prefix('#') {
        return number.parse().map_err(|_| {
            Error::invalid(format!("expected a row number such as #5, found {wanted:?}"))
        });
    }
    table.require(wanted)
}

/// Returns what a store has vectors of, and how.
fn embedding_words(embedding: &EmbeddingMetadata) -> String {
    format!(
        "{} of dimension {}: {}, {}, {}{}",
        embedding.embedder,
        embedding.dimension,
        plural(embedding.column_count.into(), "column"),
        plural(embedding.category_count.into(), "category"),
        plural(embedding.text_count.into(), "text"),
        match (embedding.text_vectors, embedding.text_encoding) {
            (false, _) => " (without vectors)",
            (true, TextEncoding::F16) => "",
            (true, TextEncoding::Int8) => " (vectors as int8)",
        }
    )
}

fn print_store(store: &Store, tasks: &[TaskView], output: &mut Output) -> Result<()> {
    let metadata = store.metadata();
    output.line(&format!(
        "{}: {} in {}; {}",
        metadata.database,
        plural(metadata.tables.iter().map(|t| u64::from(t.row_count)).sum(), "row"),
        plural(metadata.tables.len() as u64, "table"),
        bytes(store.file_bytes())
    ))?;
    output.line(&format!("root {}", metadata.root))?;
    output.line(&match &metadata.statistics_until {
        None => "statistics of all rows: no task records a train split".to_owned(),
        Some(StatisticsUntil { time_us, task }) => {
            let whose = match task {
                Some(task) => format!("the end of the train split of task {task:?}"),
                None => "as the schema says".to_owned(),
            };
            format!("statistics of the rows until {}, {whose}", time_text(*time_us))
        }
    })?;
    output.line(&format!("{}\n", embedding_words(&metadata.embedding)))?;
    output.line("tables")?;
    output.columns(metadata.tables.iter().map(|table| {
        let key = if table.key.is_empty() { "-".to_owned() } else { table.key.join(", ") };
        [
            table.name.clone(),
            plural(table.row_count.into(), "row"),
            plural(table.columns.len() as u64, "column"),
            format!("key {key}"),
            time_words(store, table),
        ]
    }))?;
    output.line("\nrelations")?;
    let links: Vec<_> = metadata.tasks.iter().filter_map(TaskMetadata::link).collect();
    let relation_of_pairs =
        |number: u32| links.iter().any(|link| [link.anchor, link.candidate].contains(&number));
    output.columns((0..).zip(store.relations()).map(|(number, relation)| {
        let relation = relation.metadata();
        [
            format!("{}.{}", metadata.tables[relation.child as usize].name, relation.name),
            format!("-> {}", metadata.tables[relation.parent as usize].name),
            match relation_of_pairs(number) {
                true => "from pairs, which only their own seeds see".to_owned(),
                false => plural(relation.edge_count.into(), "link"),
            },
            format!("{} NULL", count(relation.null_count)),
            format!("{} unresolved", count(relation.unresolved_count)),
        ]
    }))?;
    if !metadata.aggregates.is_empty() {
        output.line("\naggregates")?;
        output.columns(metadata.aggregates.iter().map(|aggregate| {
            let parent = metadata.relations[aggregate.relation as usize].parent as usize;
            [aggregate.name.clone(), format!("of {}", metadata.tables[parent].name)]
        }))?;
    }
    if !metadata.summaries.is_empty() {
        output.line("\nsummaries")?;
        output.columns(metadata.summaries.iter().map(|summary| {
            let name = |table: u32| &metadata.tables[table as usize].name;
            let reached = match metadata.relations.get(summary.relation as usize) {
                Some(relation) => format!("as a child of {}", name(relation.parent)),
                None => "the latest row for every seed".to_owned(),
            };
            [name(summary.table).clone(), format!("of {}", name(summary.of)), reached]
        }))?;
    }
    output.line("\ntasks (train / val / test)")?;
    output.columns(tasks.iter().map(|task| {
        [
            task.name.clone(),
            task.semantic.clone(),
            match &task.link {
                Some(link) => format!("of {} linked to {}", link.anchor, link.candidate),
                None => format!("of {}", task.anchor),
            },
            match &task.link {
                Some(link) => {
                    format!(
                        "{} pairs, {} of each group drawn",
                        count(task.seeds.into()),
                        link.drawn
                    )
                }
                None => plural(task.seeds.into(), "seed"),
            },
            format!("{} / {} / {}", count(task.train), count(task.val), count(task.test)),
            if task.recorded_split { "recorded" } else { "by hash" }.to_owned(),
        ]
    }))
}

fn print_table(store: &Store, table: &TableMetadata, output: &mut Output) -> Result<()> {
    output.line(&format!(
        "{}: {}, {} bytes each; {}",
        table.name,
        plural(table.row_count.into(), "row"),
        table.stride,
        time_words(store, table)
    ))?;
    let metadata = store.metadata();
    let is_summary =
        metadata.summaries.iter().any(|s| metadata.tables[s.table as usize].name == table.name);
    output.columns(table.columns.iter().map(|column| {
        let stats = match &column.stats {
            // Its cells have the scale of the summarised column, whose statistics these are.
            ColumnStats::Numerical { mean, std, .. } if is_summary => {
                format!("scaled by mean {}, std {}", significant(*mean), significant(*std))
            }
            _ => describe_stats(column),
        };
        let known = match &column.known {
            None => String::new(),
            Some(KnownMetadata::At { column, .. }) => format!("known at {column}"),
            Some(KnownMetadata::Delay { delay_us }) => {
                format!("known {} after its row", crate::prepare::schema::Delay(*delay_us))
            }
        };
        [
            column.index.to_string(),
            column.name.clone(),
            column.semantic().to_string(),
            format!("{} NULL", count(column.null_count)),
            stats,
            known,
        ]
    }))
}

fn describe_stats(column: &ColumnMetadata) -> String {
    match &column.stats {
        ColumnStats::Identifier | ColumnStats::Text => String::new(),
        ColumnStats::Numerical { scale, mean, std, min, max } => match scale {
            Scale::Rank { .. } => format!("{min} to {max}, by rank"),
            Scale::Linear | Scale::Log => {
                let of = if scale.is_linear() { "" } else { "of logarithms: " };
                let (mean, std) = (significant(*mean), significant(*std));
                format!("{min} to {max}, {of}mean {mean}, std {std}")
            }
        },
        ColumnStats::Count { min, max } => {
            format!("{} to {}", count((*min).into()), count((*max).into()))
        }
        ColumnStats::Timestamp { min_us, max_us, .. } => {
            format!("{} to {}", time_text(*min_us), time_text(*max_us))
        }
        ColumnStats::Boolean { true_count } => format!("{} true", count(*true_count)),
        ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count } => {
            let later = known_count.map_or(0, |known| cat_emb_count - known);
            let later = if later > 0 {
                format!(" ({later} of them only after the training period)")
            } else {
                String::new()
            };
            format!("{}{later}, from {cat_emb_start}", plural((*cat_emb_count).into(), "category"))
        }
    }
}

fn print_row(row: &RowView, output: &mut Output) -> Result<()> {
    let key = row.key.as_ref().map_or_else(String::new, |key| format!(" {key}"));
    let time = row.time.as_deref().unwrap_or("none: always visible");
    output.line(&format!("{}{key}  (row #{}, time {time})", row.table, row.row))?;
    output.columns(row.cells.iter().map(|cell| {
        let quoted = ["categorical", "text"].contains(&cell.semantic.as_str());
        let value = match &cell.value {
            None => "NULL".to_owned(),
            Some(value) if quoted => format!("{value:?}"),
            Some(value) => value.clone(),
        };
        [cell.column.clone(), cell.semantic.clone(), value]
    }))?;
    for (title, neighbours) in [("parents", &row.parents), ("children", &row.children)] {
        if neighbours.is_empty() {
            continue;
        }
        output.line(title)?;
        output.columns(neighbours.iter().map(|neighbour| {
            let more = if neighbour.count > neighbour.rows.len() { ", ..." } else { "" };
            [
                neighbour.relation.clone(),
                format!("{} {}", count(neighbour.count as u64), neighbour.table),
                format!("{}{more}", neighbour.rows.join(", ")),
            ]
        }))?;
    }
    Ok(())
}
