//! What a part tells of itself: of which preparation it is, and which rows it has.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::part::Part;
use crate::error::{Error, Result};
use crate::prepare::build::references::looked_up;
use crate::prepare::schema::{Schema, Table};
use crate::prepare::source::{FileVersion, InBlocks, Source};

/// The version of the bytes of a part. A change of what the first pass takes changes it, too.
const FORMAT: u32 = 1;

/// The head of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartHead {
    /// The version of the bytes.
    pub format: u32,
    /// The version of headwater.
    pub headwater: String,
    /// The number of the part, from 1 on.
    pub number: u32,
    /// The number of parts.
    pub count: u32,
    /// Of what it is a part.
    pub origin: Origin,
    /// The tables, in the schema's order.
    pub tables: Vec<TableHead>,
}

/// What all parts of a preparation are read from, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::prepare) struct Origin {
    /// What the reading takes of the schema: each table of the source, and by what its rows are looked up.
    pub schema: Vec<Value>,
    /// The files of the tables.
    pub files: Vec<FileVersion>,
}

/// What a part has of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableHead {
    /// The table's name in the schema.
    pub table: String,
    /// The number of blocks of the whole table.
    pub blocks: u64,
    /// The rows and the bytes of each batch of each block that the part has, in their order.
    pub held: Vec<Vec<(u32, u64)>>,
}

/// The version of headwater only.
#[derive(Deserialize)]
pub(super) struct HeadVersion {
    pub format: u32,
    pub headwater: String,
}

impl HeadVersion {
    /// Whether this version of headwater reads the part.
    pub(super) fn is_ours(&self) -> bool {
        self.format == FORMAT && self.headwater == env!("CARGO_PKG_VERSION")
    }
}

/// Returns the tables of a schema whose rows parts have: those of its own, not those that tasks make.
pub(super) fn own_tables(schema: &Schema) -> impl Iterator<Item = (usize, &Table)> {
    schema.tables.iter().enumerate().filter(|(_, table)| table.labels_of.is_none())
}

impl Origin {
    /// Returns what the parts of a preparation are read from now. `schema` has the tables that tasks add, too.
    ///
    /// # Errors
    /// `InvalidArgument` when the source cannot be cut into blocks; those of the source.
    pub(in crate::prepare) fn new(source: &dyn Source, schema: &Schema) -> Result<Self> {
        let tables = own_tables(schema).map(|(_, table)| {
            let mut read = serde_json::to_value(table)?;
            // A JSON object does not keep it.
            read["order of columns"] = json!(table.columns.keys().collect::<Vec<_>>());
            read["looked up by"] = json!(looked_up(schema, &table.name));
            Ok(read)
        });
        let tables = tables.collect::<std::result::Result<_, serde_json::Error>>();
        let tables = tables.map_err(|e| Error::schema(e.to_string()))?;
        Ok(Self { schema: tables, files: files(source, schema)? })
    }
}

impl PartHead {
    /// Returns the head of a part that has no rows yet.
    pub(super) fn new(part: Part, origin: Origin) -> Self {
        Self {
            format: FORMAT,
            headwater: env!("CARGO_PKG_VERSION").to_owned(),
            number: part.number(),
            count: part.count(),
            origin,
            tables: Vec::new(),
        }
    }
}

/// Returns the versions of the files that parts are read from.
pub(super) fn files(source: &dyn Source, schema: &Schema) -> Result<Vec<FileVersion>> {
    let names: Vec<&str> = own_tables(schema).map(|(_, table)| table.source_name()).collect();
    in_blocks(source)?.files(&names)
}

/// Returns the source as one that is cut into blocks.
pub(super) fn in_blocks(source: &dyn Source) -> Result<&dyn InBlocks> {
    source.in_blocks().ok_or_else(|| {
        Error::invalid(format!(
            "expected files of tables or a SQLite file, found {}, which cannot be read in parts; export its \
             tables to Parquet files first, or prepare without parts",
            source.describe()
        ))
    })
}
