//! Footer and postscript: messages of protobuf, by hand, since they have seven numbers and a text.

/// The version of the format.
pub(super) const VERSION: u64 = 1;

const MAGIC: u64 = 0x7193_0e70_4fda_e05e;

/// The first record of the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub version: u64,
    pub chunk_count: u64,
    pub record_count: u64,
    /// How the file was written; for people.
    pub options: String,
}

/// A chunk of records, as the footer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub offset: u64,
    pub record_bytes: u64,
    pub record_count: u64,
}

impl Summary {
    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [self.version, self.chunk_count, self.record_count];
        let mut inner = encode_numbers(&numbers);
        append_bytes(&mut inner, 4, self.options.as_bytes());
        let mut outer = Vec::new();
        append_bytes(&mut outer, 1, &inner);
        outer
    }

    /// Returns the message; none if it is not one of an ArrayRecord file.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut inner = None;
        for (number, value) in fields(bytes)? {
            if let (1, Value::Bytes(bytes)) = (number, value) {
                inner = Some(bytes);
            }
        }
        let inner = fields(inner?)?;
        let [version, chunk_count, record_count] = decode_numbers(&inner);
        let options = inner.iter().rev().find_map(|field| match field {
            (4, Value::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        });
        Some(Self { version, chunk_count, record_count, options: options.unwrap_or_default() })
    }
}

impl Entry {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode_numbers(&[self.offset, self.record_bytes, self.record_count])
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [offset, record_bytes, record_count] = decode_numbers(&fields(bytes)?);
        Some(Self { offset, record_bytes, record_count })
    }
}

/// Returns the postscript of a file whose footer is at this offset.
pub(super) fn postscript(footer: u64) -> Vec<u8> {
    encode_numbers(&[footer, MAGIC])
}

/// Returns the offset of the footer; none if it is not a postscript.
pub(super) fn footer_of(postscript: &[u8]) -> Option<u64> {
    let [footer, magic] = decode_numbers(&fields(postscript)?);
    (magic == MAGIC).then_some(footer)
}

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields 1, 2, .. as numbers, which are 0 where they are left out.
fn decode_numbers<const N: usize>(fields: &[(u64, Value<'_>)]) -> [u64; N] {
    let mut numbers = [0; N];
    for field in fields {
        if let (number @ 1.., Value::Number(value)) = field
            && let Some(place) = numbers.get_mut(*number as usize - 1)
        {
            *place = *value;
        }
    }
    numbers
}

fn encode_numbers(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, &value) in (1..).zip(numbers) {
        append_varint(&mut bytes, number << 3);
        append_varint(&mut bytes, value);
    }
    bytes
}

fn append_bytes(message: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    append_varint(message, number << 3 | 2);
    append_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

pub(super) fn append_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number from the front of `bytes`; none if there is no number.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if place == 9 && part > 1 {
            return None;
        }
        number |= part << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes `count` bytes from the front of `bytes`; none if there are fewer.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(count).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Returns the numbers and byte strings of a message, by field number; none if it is not a message.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = take_varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Value::Number(take_varint(&mut bytes)?),
            1 => Value::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = take_varint(&mut bytes)?;
                Value::Bytes(take(&mut bytes, length)?)
            }
            5 => Value::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_protobuf() {
        let summary =
            Summary { version: 1, chunk_count: 2, record_count: 300, options: "a:1".into() };
        let bytes = [10, 12, 8, 1, 16, 2, 24, 172, 2, 34, 3, b'a', b':', b'1'];
        assert_eq!(summary.encode(), bytes);
        assert_eq!(Summary::decode(&bytes), Some(summary));
        // A field that a later version adds is passed over.
        let entry = Entry { offset: u64::MAX, record_bytes: 0, record_count: 1 };
        let more = [entry.encode(), vec![0x7a, 1, 9, 0x49, 1, 2, 3, 4, 5, 6, 7, 8]].concat();
        assert_eq!(Entry::decode(&more), Some(entry));
        assert_eq!(footer_of(&postscript(1 << 40)), Some(1 << 40));
        for not in [&b"\x08"[..], b"\x0a\x7f", b"\x0b", &[0xff; 11], &entry.encode()] {
            assert_eq!(footer_of(not), None);
            assert_eq!(Summary::decode(not), None);
        }
    }
}
