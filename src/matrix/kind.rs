//! What a file is by its bytes, whatever it is said to be.

use super::{MatrixFormat, safetensors};
use crate::error::{Error, Result};

/// How far into a manifest its mark is looked for.
const MARK_WITHIN: usize = 64;

/// A kind of file that its bytes tell.
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
    /// What these bytes are beyond doubt; numbers look like none of them.
    fn of(bytes: &[u8]) -> Option<Self> {
        let begins = |with: &[u8]| bytes.starts_with(with);
        let has_mark = || {
            let mark = b"\"headwater_matrix\"";
            bytes.windows(mark.len()).take(MARK_WITHIN).any(|found| found == mark)
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

    fn words(self) -> &'static str {
        match self {
            Self::Npy => "a .npy file",
            Self::Safetensors => "a .safetensors file",
            Self::Parquet => "a .parquet file",
            Self::Manifest => "the manifest of a matrix",
            Self::Npz => "an archive (.npz or .zip)",
            Self::Hdf5 => "an HDF5 file",
        }
    }
}

/// Refuses bytes that are beyond doubt of another format than `format`, which was said or named.
///
/// # Errors
/// `NotOurs`, with what to leave out.
pub(super) fn check(bytes: &[u8], format: &MatrixFormat) -> Result<()> {
    let (wanted, expected, remedy) = match format {
        // Its name has been looked at before.
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
            "a .npy file, because --dtype is given without --columns",
            "the file declares its types: leave out --dtype",
        ),
        MatrixFormat::Safetensors(Some(_)) => (
            Some(Kind::Safetensors),
            "a .safetensors file, because --tensor is given",
            "the file has no tensors: leave out --tensor",
        ),
        MatrixFormat::Parquet(Some(_)) => (
            Some(Kind::Parquet),
            "a .parquet file, because --select is given",
            "the file has no column names: leave out --select",
        ),
        MatrixFormat::Raw { .. } => (
            None,
            "raw numbers, because --columns is given",
            "its header would be read as numbers: leave out --columns and --dtype",
        ),
    };
    let Some(found) = Kind::of(bytes).filter(|found| Some(*found) != wanted) else {
        return Ok(());
    };
    let remedy = match found {
        Kind::Npz | Kind::Hdf5 => "save its array as .npy",
        Kind::Manifest => {
            "a manifest declares how its files are read: give it alone, with a name \
                           that ends in .json"
        }
        _ => remedy,
    };
    Err(Error::not_ours(format!("expected {expected}, found {}; {remedy}", found.words())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Element;

    #[test]
    fn what_numbers_look_like_is_none_of_them() {
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
