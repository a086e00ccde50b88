//! `headwater inspect` of a store of events: its content, or one token row.

use std::sync::Arc;

use super::inspect_args::InspectArgs;
use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::events::{EventSampler, EventSettings, EventStore, FieldKind, FieldMetadata, Speed};
use crate::plan::{Assignment, Split};
use crate::view::words::{bytes, count, entities, plural, printable};
use crate::view::{TokenPicture, check_page_place, save_page, time_text};

pub(super) fn run(args: &InspectArgs) -> Result<()> {
    if args.table.is_some() || args.task.is_some() {
        return Err(Error::invalid(
            "expected a store of tables for --table and --task, found a store of events; use \
             --token-row",
        ));
    }
    let store = EventStore::open(&args.store)?;
    match args.token_row {
        Some(row) => show_row(store, row, args),
        None => show_store(&store, args),
    }
}

fn show_store(store: &EventStore, args: &InspectArgs) -> Result<()> {
    let mut output = Output::new();
    let metadata = store.metadata();
    if args.json {
        return output.json(&serde_json::json!({
            "metadata": metadata, "bytes": store.file_bytes()
        }));
    }
    output.line(&format!(
        "{}: {} of {} in {}; {}",
        printable(&metadata.database),
        plural(metadata.event_count(), "event"),
        entities(u64::from(metadata.entity_count)),
        plural(metadata.row_count(), "row"),
        bytes(store.file_bytes())
    ))?;
    output.line(&format!("root {}", metadata.root))?;
    let entity: Vec<_> = metadata.entity.iter().map(|name| printable(name)).collect();
    output.line(&format!(
        "codec {}, {}; an entity is a value of {}; {} to {}",
        metadata.codec,
        plural(store.vocabulary().into(), "token"),
        entity.join(", "),
        time_text(metadata.first_us),
        time_text(metadata.last_us)
    ))?;
    if let Some(words) = least_length(store.room()) {
        output.line(&words)?;
    }
    output.line("")?;
    if !metadata.fields.is_empty() {
        output.line("fields")?;
        output.columns(metadata.fields.iter().map(field_columns))?;
        output.line("")?;
    }
    output.line("splits")?;
    output.columns(Split::ALL.into_iter().map(|split| {
        let counts = metadata.counts(split);
        [
            split.name().to_owned(),
            plural(counts.rows.into(), "row"),
            plural(counts.events, "event"),
            format!("{} an epoch", plural(counts.items, "token row")),
        ]
    }))
}

/// Returns the field's name, its first token, and what its value is.
fn field_columns(field: &FieldMetadata) -> [String; 3] {
    let kind = match &field.kind {
        FieldKind::Category { values, max_bytes: 0, .. } => {
            format!("category of {}", plural(values.len() as u64, "value"))
        }
        FieldKind::Category { values, max_bytes, .. } => format!(
            "category of {}; rare ones in up to {}",
            plural(values.len() as u64, "value"),
            plural(u64::from(*max_bytes), "byte")
        ),
        FieldKind::Number => "number".to_owned(),
        FieldKind::Bytes { max_bytes } => {
            format!("up to {}", plural(u64::from(*max_bytes), "byte"))
        }
        FieldKind::Time => "time".to_owned(),
    };
    [printable(&field.name), format!("token {}", field.role), kind]
}

/// Says how long token rows must be, where that is more than by default.
pub(super) fn least_length(room: usize) -> Option<String> {
    let default = EventSettings::default().sequence_length;
    let tokens = count(room as u64);
    (room > default as usize)
        .then(|| format!("a token row needs at least {tokens} tokens (sequence_length)"))
}

fn show_row(store: EventStore, row: u64, args: &InspectArgs) -> Result<()> {
    if let Some(path) = &args.html {
        check_page_place(path)?;
    }
    let split = Split::ALL.into_iter().find(|split| split.name() == args.split);
    let mut settings = EventSettings::for_store(&store);
    settings.sequence_length = args.sequence_length.unwrap_or(settings.sequence_length);
    let rank = Assignment::new(0, 1)?;
    let speed = Speed { threads: Some(1), prefetch: 0 };
    let sampler = EventSampler::new(Arc::new(store), settings, rank, speed)?;
    let picture = TokenPicture::new(&sampler, split.unwrap_or(Split::Train), row)?;
    let mut output = Output::new();
    match &args.html {
        Some(path) => {
            save_page(path, &picture.page())?;
            output.line(&format!("{}: {}; open it in a browser", path.display(), picture.title()))
        }
        None if args.json => output.json(&picture),
        None => output.line(picture.text().trim_end()),
    }
}
