//! The header of a `.npy` file, by NumPy's NEP 1 (versions 1 to 3).

use super::Element;
use crate::error::{Error, Result};

pub(super) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The most characters of a header that an error shows.
const SHOWN: usize = 200;

/// The type, shape and place of the array in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// `None` for two bytes without a type, as NumPy stores bfloat16.
    pub element: Option<Element>,
    pub rows: u64,
    pub columns: u64,
    /// The byte at which the first element starts.
    pub offset: usize,
}

/// Reads the header of a matrix in C order.
pub(super) fn parse(bytes: &[u8]) -> Result<Header> {
    if bytes.get(..6) != Some(&MAGIC[..]) {
        return Err(Error::not_ours(
            "this is not a .npy file (wrong first bytes); write it with numpy.save",
        ));
    }
    let short = || Error::corrupt("the file ends inside its header; write it again");
    let (length, start) = match bytes.get(6).ok_or_else(short)? {
        1 => (u16_at(bytes, 8).ok_or_else(short)?, 10),
        2 | 3 => (crate::bytes::u32_at(bytes, 8).ok_or_else(short)? as usize, 12),
        version => {
            return Err(Error::version(format!(
                "expected .npy version 1 to 3, found version {version}; save the array again with \
                 numpy.save"
            )));
        }
    };
    let offset = usize::checked_add(start, length).ok_or_else(short)?;
    let text = bytes.get(start..offset).ok_or_else(short)?;
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::corrupt("the header is not text in UTF-8; write the file again"))?;
    let (element, rows, columns) = describe(text)?;
    Ok(Header { element, rows, columns, offset })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let raw = bytes.get(at..at + 2)?;
    Some(usize::from(u16::from_le_bytes([raw[0], raw[1]])))
}

/// Reads the dictionary: type, order and shape.
fn describe(text: &str) -> Result<(Option<Element>, u64, u64)> {
    let wrong = |what: &str| {
        Error::corrupt(format!(
            "the header {:?} {what}; write the file again with numpy.save",
            text.trim_end().chars().take(SHOWN).collect::<String>()
        ))
    };
    let value = |name: &str| {
        let quoted = format!("'{name}'");
        let after = text.split_once(&*quoted)?.1.trim_start().strip_prefix(':')?;
        Some(after.trim_start())
    };
    let descr = value("descr").ok_or_else(|| wrong("has no 'descr'"))?;
    // The fields of records may have any names, these three too.
    let descr = (descr.strip_prefix('\'').and_then(|rest| rest.split_once('\'')))
        .ok_or_else(|| wrong("describes records; expected one number type"))?
        .0;
    // Of two, Python reads the last, and readers in other languages the first.
    for name in ["descr", "fortran_order", "shape"] {
        if text.matches(&*format!("'{name}'")).count() > 1 {
            return Err(wrong(&format!("has '{name}' twice")));
        }
    }
    let element = element_of(descr)?;
    match value("fortran_order").ok_or_else(|| wrong("has no 'fortran_order'"))? {
        order if order.starts_with("False") => {}
        _ => {
            return Err(Error::invalid(
                "expected C order (row by row), found Fortran order (column by column); save \
                 numpy.ascontiguousarray(array)",
            ));
        }
    }
    let shape = value("shape").and_then(|shape| shape.strip_prefix('('));
    let shape = shape.and_then(|shape| shape.split_once(')')).map(|(shape, _)| shape);
    let shape = shape.ok_or_else(|| wrong("has no 'shape'"))?;
    let axes = (shape.split(',').map(str::trim).filter(|axis| !axis.is_empty()))
        .map(|axis| {
            axis.parse::<u64>().map_err(|_| wrong("has a shape that is not a list of integers"))
        })
        .collect::<Result<Vec<_>>>()?;
    match axes[..] {
        [rows, columns] => Ok((element, rows, columns)),
        _ => Err(Error::invalid(format!(
            "expected a matrix of rows and columns, found an array of {} {}; reshape it",
            axes.len(),
            if axes.len() == 1 { "axis" } else { "axes" }
        ))),
    }
}

fn element_of(descr: &str) -> Result<Option<Element>> {
    Ok(Some(match descr {
        "<f8" => Element::F64,
        "<f4" => Element::F32,
        "<f2" => Element::F16,
        "|V2" | "<V2" => return Ok(None),
        _ => {
            return Err(Error::invalid(format!(
                "expected numbers of type '<f8', '<f4' or '<f2' (or bfloat16), found {descr:?}; \
                 convert the array first"
            )));
        }
    }))
}

/// Returns the header of a `.npy` file for a matrix of 64-bit floats; the numbers follow, row by
/// row.
#[must_use]
pub fn header(rows: usize, columns: usize) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // The numbers start at a multiple of 64 bytes, as NumPy writes them.
    let filled = (10 + header.len() + 1).next_multiple_of(64) - 11;
    header.extend(std::iter::repeat_n(' ', filled - header.len()));
    header.push('\n');
    [&MAGIC[..], &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes
    }

    #[test]
    fn headers_that_numpy_writes_are_read() {
        let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (3000000000, 16), }      \n";
        for (version, start) in [(1, 10), (2, 12), (3, 12)] {
            let header = parse(&file(version, text)).unwrap();
            let offset = start + text.len();
            let element = Some(Element::F64);
            assert_eq!(header, Header { element, rows: 3_000_000_000, columns: 16, offset });
        }
        let half = "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 7), }\n";
        assert_eq!(parse(&file(1, half)).unwrap().element, Some(Element::F16));
        let bfloat = "{'descr': '<V2', 'fortran_order': False, 'shape': (2, 7), }\n";
        assert_eq!(parse(&file(1, bfloat)).unwrap().element, None);
    }

    #[test]
    fn a_written_header_is_read_back() {
        for (rows, columns) in [(1, 1), (3, 2), (100, 1000), (usize::MAX, usize::MAX)] {
            let bytes = header(rows, columns);
            let header = parse(&bytes).unwrap();
            assert_eq!((header.rows, header.columns), (rows as u64, columns as u64));
            assert_eq!((header.element, header.offset % 64), (Some(Element::F64), 0));
            assert_eq!(bytes.len(), header.offset);
        }
    }

    #[test]
    fn headers_of_other_arrays_are_refused() {
        let good = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }\n";
        for (from, to, words) in [
            ("<f8", ">f8", "convert the array"),
            ("<f8", "<i4", "convert the array"),
            ("'<f8'", "[('a', '<f8')]", "describes records"),
            ("'<f8'", "[('shape', '<f8'), ('descr', '<f8')]", "describes records"),
            ("False", "True", "column by column"),
            ("(3, 2)", "(6,)", "an array of 1 axis;"),
            ("(3, 2)", "()", "0 axes"),
            ("(3, 2)", "(3, -2)", "not a list of integers"),
            ("'shape'", "'form'", "has no 'shape'"),
            ("'descr'", "'type'", "has no 'descr'"),
            ("}", "'shape': (2, 3), }", "has 'shape' twice"),
            ("}", "'descr': '<f4', }", "has 'descr' twice"),
        ] {
            let error = parse(&file(1, &good.replace(from, to))).unwrap_err();
            assert!(error.to_string().contains(words), "{to}: {error}");
        }
        for cut in 0..file(1, good).len() {
            parse(&file(1, good)[..cut]).unwrap_err();
        }
    }
}
