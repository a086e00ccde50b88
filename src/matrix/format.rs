//! How a file of numbers is to be read: the format and the element type.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The type of a matrix's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Element {
    F64,
    F32,
    F16,
    Bf16,
}

impl Element {
    /// Returns the name of the type, as a command line gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The length of a number in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// The format of a file, and what to read of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum MatrixFormat {
    /// By the end of the file's name: `.npy`, `.safetensors` with one tensor, `.parquet` with all
    /// its columns. A single file may end in `.json`: the [`Manifest`](super::Manifest) of a
    /// matrix.
    ByName,
    /// NumPy's `.npy`. The element is needed for bfloat16 alone, which NumPy stores as two bytes
    /// without a type.
    Npy(Option<Element>),
    /// A tensor of a safetensors file (default: its only tensor). The last axis is the columns, all
    /// other axes together are the rows.
    Safetensors(Option<String>),
    /// Columns of a Parquet file, in this order (default: all columns). Floats and integers of up
    /// to 32 bits widen to 64-bit floats.
    Parquet(Option<Vec<String>>),
    /// Raw numbers without a header, row by row, little endian.
    Raw {
        /// The type of the numbers.
        element: Element,
        /// The numbers in a row.
        columns: usize,
    },
}

impl MatrixFormat {
    /// Returns the format that the name of a file implies.
    pub(super) fn of_name(path: &Path) -> Result<Self> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("npy") => Ok(Self::Npy(None)),
            Some("safetensors") => Ok(Self::Safetensors(None)),
            Some("parquet") => Ok(Self::Parquet(None)),
            _ => Err(Error::invalid(
                "expected a file name that ends in .npy, .safetensors or .parquet, or a single \
                manifest that ends in .json; for raw numbers give the type (f64, f32, f16 or \
                bf16) and the number of columns",
            )),
        }
    }
}
