//! What is to be known of files of numbers beside the files.

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
    /// Its name, as it is given on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// How a file says what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum MatrixFormat {
    /// As its name ends: `.npy`, `.safetensors` with one tensor, `.parquet` with all its columns. One
    /// name alone may end in `.json`: the [`Manifest`](super::Manifest) of a matrix.
    ByName,
    /// NumPy's. The element is for what NumPy has no name for: bfloat16, which it keeps as two bytes.
    Npy(Option<Element>),
    /// A tensor of a safetensors file, the only one where none is named; its last axis are the
    /// columns, all others together the rows.
    Safetensors(Option<String>),
    /// Columns of a Parquet file, in the order in which they are named, all of them where none is.
    /// Their numbers, integers of up to 32 bits and floats, become 64 bits wide.
    Parquet(Option<Vec<String>>),
    /// Nothing but the numbers, row by row, little endian.
    Raw {
        /// The type of the numbers.
        element: Element,
        /// How many a row has.
        columns: usize,
    },
}

impl MatrixFormat {
    /// What the name of a file says.
    pub(super) fn of_name(path: &Path) -> Result<Self> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("npy") => Ok(Self::Npy(None)),
            Some("safetensors") => Ok(Self::Safetensors(None)),
            Some("parquet") => Ok(Self::Parquet(None)),
            _ => Err(Error::invalid(
                "expected a name that ends in .npy, .safetensors or .parquet, or one manifest \
                 (.json); for raw numbers, set --dtype (f64, f32, f16 or bf16) and --columns",
            )),
        }
    }
}
