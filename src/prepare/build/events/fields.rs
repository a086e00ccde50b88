//! Reads the fields of events from the columns of a source, for the codec `fields-v1`.

use std::cell::RefCell;
use std::collections::HashMap;

use arrow_array::{Array, Float64Array, Int64Array, StringViewArray};

use super::categories::Category;
use super::columns::{Columns, Rows};
use super::dropped::{Notes, Reason};
use super::log::{Refused, RowValues, ValueReader};
use super::seen::FieldsSeen;
use super::units::UnitCheck;
use crate::error::Result;
use crate::events::fields::{FieldLayout, StoredValue, is_too_large};
use crate::events::{FieldKind, FieldMetadata, number_code, whole_seconds};
use crate::prepare::schema::{Column, EventField, Events};

/// The form of all events.
const FORM: u16 = 0;

/// The columns of fields, in the order of the vocabulary.
pub(super) struct Fields {
    layout: FieldLayout,
    fields: Vec<FieldReader>,
}

/// The column of a field.
struct FieldReader {
    place: usize,
    kind: ReadAs,
}

/// How a column is read.
enum ReadAs {
    Category { numbers: HashMap<String, u16>, max_bytes: u8 },
    Number,
    Text { max_bytes: u8 },
    Time(Column),
}

impl Fields {
    /// Returns a reader of the fields of `vocabulary`, which is that of `events`.
    pub(super) fn new(
        events: &Events,
        vocabulary: &[FieldMetadata],
        columns: &mut Columns,
    ) -> Self {
        let field = |(metadata, field): (&FieldMetadata, &EventField)| FieldReader {
            place: columns.place(&metadata.name),
            kind: match (&metadata.kind, field) {
                (FieldKind::Category { values, max_bytes, .. }, _) => ReadAs::Category {
                    numbers: values.iter().cloned().zip(0..).collect(),
                    max_bytes: *max_bytes,
                },
                (FieldKind::Bytes { max_bytes }, _) => ReadAs::Text { max_bytes: *max_bytes },
                (_, EventField::Time { unit }) => ReadAs::Time(EventField::time_column(*unit)),
                _ => ReadAs::Number,
            },
        };
        let fields = vocabulary.iter().zip(events.fields.values()).map(field).collect();
        Self { layout: FieldLayout::new(vocabulary), fields }
    }
}

impl ValueReader for Fields {
    fn read<'a>(&'a self, rows: &Rows<'_>) -> Result<Box<dyn RowValues + 'a>> {
        let read = |FieldReader { place, kind }: &'a FieldReader| {
            Ok(match kind {
                ReadAs::Category { numbers, max_bytes } => {
                    let values = Category::new(rows.texts(*place)?);
                    let tokens = values.values().map(|value| numbers.get(value).copied()).collect();
                    Cells::Categories { values, tokens, max_bytes: *max_bytes }
                }
                ReadAs::Number => Cells::Numbers(rows.numbers(*place, "a number")?),
                ReadAs::Text { max_bytes } => Cells::Texts(rows.texts(*place)?, *max_bytes),
                ReadAs::Time(column) => Cells::Times {
                    times: rows.times(*place, column)?,
                    are_integers: rows.are_integers(*place),
                },
            })
        };
        let cells = self.fields.iter().map(read).collect::<Result<_>>()?;
        let times = vec![UnitCheck::default(); self.fields.len()];
        let seen = RefCell::new(FieldsSeen { filled: 0, times });
        Ok(Box::new(Values { layout: &self.layout, cells, seen }))
    }
}

/// The values of some rows.
struct Values<'a> {
    layout: &'a FieldLayout,
    cells: Vec<Cells>,
    seen: RefCell<FieldsSeen>,
}

/// The values of one field.
enum Cells {
    Categories {
        values: Category,
        /// The number of each different value in the vocabulary; none of a rare one.
        tokens: Vec<Option<u16>>,
        max_bytes: u8,
    },
    Numbers(Float64Array),
    Texts(StringViewArray, u8),
    Times {
        times: Int64Array,
        are_integers: bool,
    },
}

impl RowValues for Values<'_> {
    fn append(
        &self,
        row: usize,
        time: i64,
        record: &mut Vec<u8>,
        notes: &mut Notes<'_>,
    ) -> std::result::Result<u16, Refused> {
        let mut seen = self.seen.borrow_mut();
        for (field, cells) in self.cells.iter().enumerate() {
            let value = cells.value(field, row, time, notes);
            self.layout.append(field, value, record);
            if value != StoredValue::Null {
                seen.filled |= 1 << field;
                if let Cells::Times { times, are_integers: true } = cells {
                    seen.times[field].see(times.value(row));
                }
            }
        }
        Ok(FORM)
    }

    fn categories(&self) -> Vec<&Category> {
        (self.cells.iter())
            .filter_map(|cells| match cells {
                Cells::Categories { values, .. } => Some(values),
                _ => None,
            })
            .collect()
    }

    fn seen(&self) -> FieldsSeen {
        self.seen.borrow().clone()
    }
}

impl Cells {
    fn value(&self, field: usize, row: usize, time: i64, notes: &mut Notes<'_>) -> StoredValue<'_> {
        match self {
            Self::Categories { values, tokens, max_bytes } => match values.number(row) {
                None => StoredValue::Null,
                Some(number) => match tokens[number] {
                    Some(token) => StoredValue::Category(token),
                    None => {
                        let text = values.text(row);
                        notes.note(Reason::FieldRare(field, *max_bytes), || quoted(text));
                        StoredValue::Rare(beginning(text, *max_bytes))
                    }
                },
            },
            Self::Texts(texts, _) if texts.is_null(row) => StoredValue::Null,
            Self::Texts(texts, max_bytes) => {
                let text = texts.value(row);
                if text.len() > usize::from(*max_bytes) {
                    notes.note(Reason::FieldCut(field, *max_bytes), || quoted(text));
                }
                StoredValue::Text(beginning(text, *max_bytes))
            }
            Self::Numbers(numbers) if numbers.is_null(row) => StoredValue::Null,
            Self::Numbers(numbers) => number(numbers.value(row), field, notes),
            Self::Times { times, .. } if times.is_null(row) => StoredValue::Null,
            Self::Times { times, .. } => {
                let later = whole_seconds(times.value(row)) - whole_seconds(time);
                number(later as f64, field, notes)
            }
        }
    }
}

fn number(number: f64, field: usize, notes: &mut Notes<'_>) -> StoredValue<'static> {
    if number.is_nan() {
        notes.note(Reason::FieldIsNan(field), String::new);
        return StoredValue::Null;
    }
    let code = number_code(number);
    if is_too_large(number) {
        notes.note(Reason::FieldTooLarge(field), || number.to_string());
    } else if code == 0 && number != 0.0 {
        notes.note(Reason::FieldTooSmall(field), || number.to_string());
    }
    StoredValue::Number(code)
}

/// Returns the first bytes of a text.
fn beginning(text: &str, max_bytes: u8) -> &[u8] {
    &text.as_bytes()[..text.len().min(max_bytes.into())]
}

/// The most characters of a text in a message.
const QUOTED: usize = 40;

fn quoted(text: &str) -> String {
    let start: String = text.chars().take(QUOTED).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("{start:?}{more}")
}
