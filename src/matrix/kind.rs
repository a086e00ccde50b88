//! Recognizes the kind of a file by its bytes.

use super::{MatrixFormat, safetensors};
use crate::error::{Error, Result};

/// The first bytes of a manifest, in which its mark is searched.
const MARK_SEARCH_BYTES: usize = 64;

/// A kind of file that is recognized by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Npy,
    Safetensors,
    Parquet,
    Manifest,
    Npz,
    Hdf5,
}

impl Kind {
    /// Returns the kind of these bytes if it is certain; raw numbers match no kind.
    fn of(bytes: &[u8]) -> Option<Self> {
        let begins = |with: &[u8]| bytes.starts_with(with);
        let has_mark = || {
            let mark = b"\"headwater_matrix\"";
            bytes.windows(mark.len()).take(MARK_SEARCH_BYTES).any(|found| found == mark)
        };
        if begins(super::npy::MAGIC) {
            Some(Self::Npy)
        } else if begins(b"PAR1") && bytes.ends_with(b"PAR1") {
            Some(Self::Parquet)
        } else if begins(b"{") && has_mark() {
            Some(Self::Manifest)
        } else if begins(b"\x89HDF\r\n\x1a\n") {
            Some(Self::Hdf5)
        } else if begins(b"PK\x03\x04")
            && bytes[bytes.len().saturating_sub(22)..].starts_with(b"PK\x05\x06")
        {
            Some(Self::Npz)
        } else if safetensors::header_text(bytes).is_ok_and(|text| text.starts_with("{\"")) {
            Some(Self::Safetensors)
        } else {
            None
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Npy => "a .npy file",
            Self::Safetensors => "a .safetensors file",
            Self::Parquet => "a .parquet file",
            Self::Manifest => "a matrix manifest",
            Self::Npz => "an archive (.npz or .zip)",
            Self::Hdf5 => "an HDF5 file",
        }
    }
}

/// Rejects bytes that are certainly of another format than `format`.
///
/// # Errors
/// `NotOurs`, which names the option to leave out.
pub(super) fn check(bytes: &[u8], format: &MatrixFormat) -> Result<()> {
    let (wanted, expected, remedy) = match format {
        // The format was chosen by the name already.
        MatrixFormat::ByName => return Ok(()),
        MatrixFormat::Npy(None) => (Some(Kind::Npy), "a .npy file, by its name", "rename it"),
        MatrixFormat::Safetensors(None) => {
            (Some(Kind::Safetensors), "a .safetensors file, by its name", "rename it")
        }
        MatrixFormat::Parquet(None) => {
            (Some(Kind::Parquet), "a .parquet file, by its name", "rename it")
        }
        MatrixFormat::Npy(Some(_)) => (
            Some(Kind::Npy),
            "a .npy file, the only kind that takes --dtype without --columns",
            "leave out --dtype, because the file names its type",
        ),
        MatrixFormat::Safetensors(Some(_)) => (
            Some(Kind::Safetensors),
            "a .safetensors file, because --tensor is given",
            "leave out --tensor, because the file has no tensors",
        ),
        MatrixFormat::Parquet(Some(_)) => (
            Some(Kind::Parquet),
            "a .parquet file, because --select is given",
            "leave out --select, because the columns of the file have no names",
        ),
        MatrixFormat::Raw { .. } => (
            None,
            "binary numbers without a header, because --columns is given",
            "leave out --columns and --dtype, because the file has a header",
        ),
    };
    let Some(found) = Kind::of(bytes).filter(|found| Some(*found) != wanted) else {
        return Ok(());
    };
    let remedy = match found {
        Kind::Npz | Kind::Hdf5 => "save its array as .npy",
        Kind::Manifest => {
            "give the manifest alone, as a .json file and without options for its format"
        }
        _ => remedy,
    };
    Err(Error::not_ours(format!("expected {expected}, found {}; {remedy}", found.description())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Element;

    #[test]
    fn raw_numbers_match_no_kind_of_file() {
        let raw = MatrixFormat::Raw { element: Element::F32, columns: 1 };
        let mut bytes = Vec::new();
        for number in 0..100_000_u32 {
            bytes.extend((f64::from(number) / 8.0).to_le_bytes());
            bytes.extend((number as f32).to_le_bytes());
        }
        for start in (0..bytes.len()).step_by(4) {
            check(&bytes[start..], &raw).unwrap();
        }
        for short in 0..40 {
            check(&bytes[..short], &raw).unwrap();
        }
    }
}
