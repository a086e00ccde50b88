//! The header of a `.safetensors` file: JSON that names tensors and the places of their numbers.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::{Element, listed};
use crate::bytes::u64_at;
use crate::error::{Context, Error, Result};

/// The bytes of the field that holds the header's length.
const START: usize = 8;
/// The most bytes of a header, by the format.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// One tensor as a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub element: Element,
    pub rows: u64,
    pub columns: u64,
    /// The byte at which the first number starts.
    pub offset: usize,
}

/// The header's entry for a tensor.
#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The tensors by name, in the order of the header.
struct Tensors(Vec<(String, Tensor)>);

/// Finds a tensor: the one with this name, or the only one. Its numbers lie inside `bytes`.
pub(super) fn parse(bytes: &[u8], name: Option<&str>) -> Result<Header> {
    let text = header_text(bytes)?;
    let Tensors(tensors) = serde_json::from_str(text).map_err(|e| {
        Error::corrupt(format!("the header is not a list of tensors: {e}; write the file again"))
    })?;
    let data_start = START + text.len();
    check_offsets(&tensors, (bytes.len() - data_start) as u64)?;
    let (name, tensor) = choose(&tensors, name)?;
    as_matrix(tensor, data_start).context(|| format!("tensor {name:?}"))
}

pub(super) fn header_text(bytes: &[u8]) -> Result<&str> {
    let Some(length) = u64_at(bytes, 0) else {
        return Err(Error::not_ours(format!(
            "this is not a safetensors file: expected at least {START} bytes, found {}",
            bytes.len()
        )));
    };
    if bytes.get(START) != Some(&b'{') {
        return Err(Error::not_ours(
            "this is not a safetensors file (its header does not begin with '{'); write it with \
             safetensors",
        ));
    }
    if length > HEADER_BYTES_MAX {
        return Err(Error::limit(format!(
            "expected a header of at most {HEADER_BYTES_MAX} bytes, found a length of {length}"
        )));
    }
    let text = bytes[START..].get(..length as usize).ok_or_else(|| {
        Error::corrupt(format!(
            "expected a header of {length} bytes, found {}; the file is cut off",
            bytes.len() - START
        ))
    })?;
    std::str::from_utf8(text)
        .map_err(|_| Error::corrupt("the header is not text in UTF-8; write the file again"))
}

/// Checks that the tensors fill the bytes after the header without overlap, as the format requires.
fn check_offsets(tensors: &[(String, Tensor)], data_bytes: u64) -> Result<()> {
    let mut places: Vec<_> =
        tensors.iter().map(|(name, tensor)| (tensor.data_offsets, name)).collect();
    places.sort_unstable();
    let mut end = 0;
    for ((from, to), name) in places {
        if from != end || to < from || to > data_bytes {
            return Err(Error::corrupt(format!(
                "expected tensor {name:?} from byte {end} of {data_bytes} bytes of numbers, found \
                it from {from} to {to}; the file is cut off, or its header is wrong"
            )));
        }
        end = to;
    }
    if end == data_bytes {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "expected {end} bytes of numbers after the header, found {data_bytes}; write the file again"
    )))
}

fn choose<'a>(
    tensors: &'a [(String, Tensor)],
    name: Option<&str>,
) -> Result<(&'a str, &'a Tensor)> {
    let found = match name {
        Some(name) => tensors.iter().find(|(found, _)| found == name),
        None => tensors.first().filter(|_| tensors.len() == 1),
    };
    if let Some((name, tensor)) = found {
        return Ok((name, tensor));
    }
    let shown = listed(tensors.iter().map(|(name, _)| format!("{name:?}")));
    Err(Error::invalid(match (name, tensors.len()) {
        (_, 0) => "expected a tensor, found a file without tensors".to_owned(),
        (Some(name), _) => format!("no tensor is named {name:?}; the tensors are {shown}"),
        (None, count) => {
            format!("expected 1 tensor, found {count}; choose one with --tensor: {shown}")
        }
    }))
}

/// Views a tensor as a matrix: the last axis is the columns, all axes before it are the rows.
fn as_matrix(tensor: &Tensor, data_start: usize) -> Result<Header> {
    let element = match &*tensor.dtype {
        "F64" => Element::F64,
        "F32" => Element::F32,
        "F16" => Element::F16,
        "BF16" => Element::Bf16,
        other => {
            return Err(Error::invalid(format!(
                "expected numbers of F64, F32, F16 or BF16, found {other:?}; convert them first"
            )));
        }
    };
    let Some((&columns, before)) =
        tensor.shape.split_last().filter(|(_, before)| !before.is_empty())
    else {
        return Err(Error::invalid(format!(
            "expected an axis of rows and one of columns, found the shape {:?}; reshape it",
            tensor.shape
        )));
    };
    let rows = before.iter().try_fold(1_u64, |rows, axis| rows.checked_mul(*axis));
    let bytes = |rows: u64| rows.checked_mul(columns)?.checked_mul(element.bytes() as u64);
    let (from, to) = tensor.data_offsets;
    match rows.filter(|&rows| bytes(rows) == Some(to - from)) {
        Some(rows) => Ok(Header { element, rows, columns, offset: data_start + from as usize }),
        None => Err(Error::corrupt(format!(
            "the shape {:?} of {} does not match its {} bytes; write the file again",
            tensor.shape,
            tensor.dtype,
            to - from
        ))),
    }
}

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Tensors;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Tensors, M::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        tensors.push((name, map.next_value::<Tensor>()?));
                    }
                }
                // Of two entries with one name, a map keeps the last, and other readers the first.
                let mut names: Vec<&str> = tensors.iter().map(|(name, _)| &**name).collect();
                names.sort_unstable();
                match names.windows(2).find(|two| two[0] == two[1]) {
                    Some(two) => Err(serde::de::Error::custom(format!(
                        "tensor {:?} is listed twice",
                        two[0]
                    ))),
                    None => Ok(Tensors(tensors)),
                }
            }
        }

        deserializer.deserialize_map(Names)
    }
}
