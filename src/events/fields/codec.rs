//! How an event of some fields becomes tokens.

use super::metadata::{BYTE, FIELDS_MAX, FieldKind, FieldMetadata, TIME, vocabulary};
use super::number::{is_code, number_of};
use super::value::{Layout, Value};
use crate::error::Result;
use crate::events::codec::{Codec, FIRST_TIME_TOKENS};
use crate::events::decoded::{DecodedEvent, DecodedField, FieldValue};
use crate::events::row::{Event, Form, Row};
use crate::events::tokens::{TimeTokens, TokenReader, TokenTime, TokenWriter};
use crate::random::Stream;

/// The codec's name.
pub(crate) const NAME: &str = "fields-v1";

// The tokens that are the same for all fields; 5 to 15 are reserved.
const START: u16 = 0;
const TIMES: TimeTokens = TimeTokens { absolute: 1, since_1: 2, since_4: 3 };
const RARE: u16 = 4;

/// The most tokens of a time since an earlier event.
const TIME_TOKENS: usize = 5;

/// The only form of the records, which have no heads.
const FORM: u16 = 0;

/// The codec, with the vocabulary of a store.
pub(in crate::events) struct FieldsCodec {
    fields: Vec<FieldMetadata>,
    layout: Layout,
    vocabulary: u16,
}

impl FieldsCodec {
    /// Returns the codec of a vocabulary.
    ///
    /// # Errors
    /// `Corrupt` when the fields are none that a store has.
    pub(in crate::events) fn new(fields: &[FieldMetadata]) -> Result<Self> {
        let vocabulary = vocabulary(fields)?;
        Ok(Self { layout: Layout::new(fields), fields: fields.to_vec(), vocabulary })
    }

    /// Returns the value of a field; NULL for a damaged one, which [`Codec::encode`] rejects.
    fn value<'a>(&self, field: usize, event: &Event<'a>) -> Value<'a> {
        self.layout.read(field, event.value).unwrap_or(Value::Null)
    }
}

/// Returns the number of tokens of a value with its role.
fn token_count(value: Value<'_>) -> usize {
    match value {
        Value::Null => 0,
        Value::Category(_) => 2,
        Value::Number(_) => 3,
        Value::Text(bytes) => 2 + bytes.len(),
        Value::Rare(bytes) => 3 + bytes.len(),
    }
}

impl Codec for FieldsCodec {
    fn vocabulary(&self) -> u16 {
        self.vocabulary
    }

    fn room(&self) -> usize {
        let most = |field: &FieldMetadata| match field.kind {
            FieldKind::Category { max_bytes, .. } => 3 + usize::from(max_bytes),
            FieldKind::Number | FieldKind::Time => 3,
            FieldKind::Bytes { max_bytes } => 2 + usize::from(max_bytes),
        };
        1 + self.fields.iter().map(most).sum::<usize>() + TIME_TOKENS + FIRST_TIME_TOKENS
    }

    #[cfg(feature = "prepare")]
    fn forms(&self) -> &'static [u16] {
        &[FORM]
    }

    fn form(&self, form: u16) -> Option<Form> {
        (form == FORM).then_some(Form { head_bytes: 0, value_bytes: self.layout.bytes })
    }

    fn is_value(&self, _: u16, value: &[u8]) -> bool {
        self.layout.is_stored(value)
    }

    fn bound(&self, _: &Row<'_>, event: &Event<'_>, is_timed: bool) -> usize {
        let values = (0..self.fields.len()).map(|field| token_count(self.value(field, event)));
        1 + values.sum::<usize>() + if is_timed { TIME_TOKENS } else { 0 }
    }

    fn encode(
        &self,
        row: &Row<'_>,
        event: &Event<'_>,
        time: Option<TokenTime>,
        random: &mut Stream,
        tokens: &mut [u16],
    ) -> Result<usize> {
        // The fields that have a value, and behind them the time.
        let mut blocks = [(0, Value::Null); FIELDS_MAX + 1];
        let mut count = 0;
        for (index, field) in self.fields.iter().enumerate() {
            let damaged =
                || row.corrupt(format_args!("an event has no {:?} of its kind", field.name));
            let value = self.layout.read(index, event.value).ok_or_else(damaged)?;
            if value != Value::Null {
                blocks[count] = (index, value);
                count += 1;
            }
        }
        count += usize::from(time.is_some());
        let mut writer = TokenWriter::<BYTE> { tokens, count: 0 };
        writer.token(START);
        for first in 0..count {
            let left = count - first;
            // The last one needs no draw.
            let place = if left > 1 { first + random.below(left as u64) as usize } else { first };
            blocks.swap(first, place);
            match (blocks[first], time) {
                ((_, Value::Null), None) => {}
                ((_, Value::Null), Some(time)) => writer.time(&TIMES, time),
                ((field, value), _) => write(&self.fields[field], value, &mut writer),
            }
        }
        Ok(writer.count)
    }

    fn decode(&self, tokens: &[u16]) -> Result<Vec<DecodedEvent>> {
        let mut reader = TokenReader::new(tokens);
        let mut events = Vec::new();
        while reader.peek().is_some() {
            events.push(self.read(&mut reader)?);
        }
        Ok(events)
    }
}

fn write(field: &FieldMetadata, value: Value<'_>, writer: &mut TokenWriter<'_, BYTE>) {
    writer.token(field.role);
    match (value, &field.kind) {
        (Value::Category(number), FieldKind::Category { first, .. }) => {
            writer.token(first + number);
        }
        (Value::Rare(bytes), _) => {
            writer.token(RARE);
            writer.text(bytes);
        }
        (Value::Text(bytes), _) => writer.text(bytes),
        (Value::Number(code), _) => writer.code(code),
        (Value::Category(_) | Value::Null, _) => {}
    }
}

impl FieldsCodec {
    /// Takes the tokens of one event.
    fn read(&self, reader: &mut TokenReader<'_, BYTE>) -> Result<DecodedEvent> {
        if reader.peek() != Some(START) {
            return Err(reader.wrong("the token 0, which begins an event"));
        }
        reader.take();
        let mut fields: Vec<DecodedField> = Vec::new();
        while reader.peek().is_some_and(|token| token != START)
            && let Some(role) = reader.take()
        {
            let field = self.fields.iter().find(|field| field.role == role);
            let name = match field {
                Some(field) => &field.name,
                None if TIMES.has(role) => TIME,
                None => return Err(reader.was_wrong("the token of a field, or of a time")),
            };
            if fields.iter().any(|known| known.name == name) {
                return Err(reader.was_wrong(format_args!("no second {name:?} in the event")));
            }
            let value = match field {
                Some(field) => read_value(&field.kind, reader)?,
                None => FieldValue::Time(reader.time(&TIMES, role)?),
            };
            fields.push(DecodedField { name: name.to_owned(), value });
        }
        Ok(DecodedEvent { fields })
    }
}

/// Takes the value of a field behind its role.
fn read_value(kind: &FieldKind, reader: &mut TokenReader<'_, BYTE>) -> Result<FieldValue> {
    Ok(match kind {
        FieldKind::Number => FieldValue::Number(number_of(reader.code(is_code)?)),
        FieldKind::Time => FieldValue::SecondsLater(number_of(reader.code(is_code)?)),
        FieldKind::Bytes { max_bytes } => FieldValue::Text(read_text(reader, *max_bytes)?),
        FieldKind::Category { first, values, max_bytes } => {
            let of = |token: u16| values.get(usize::from(token.checked_sub(*first)?));
            match reader.take() {
                Some(RARE) => FieldValue::Text(read_text(reader, *max_bytes)?),
                Some(token) => match of(token) {
                    Some(value) => FieldValue::Text(value.clone()),
                    None => return Err(reader.was_wrong("the token of one of the field's values")),
                },
                None => return Err(reader.wrong("the token of one of the field's values")),
            }
        }
    })
}

fn read_text(reader: &mut TokenReader<'_, BYTE>, max_bytes: u8) -> Result<String> {
    let length = reader.byte()?;
    if length > max_bytes {
        return Err(reader.was_wrong(format_args!("the byte of a length of at most {max_bytes}")));
    }
    let bytes = (0..length).map(|_| reader.byte()).collect::<Result<Vec<_>>>()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
