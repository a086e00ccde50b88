//! Opens the parts of a preparation, checks that they belong together, and gives their rows to the first pass.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::batch::decode;
use super::head::{HeadVersion, Origin, PartHead, own_tables};
use super::part::{ENDING, Part};
use crate::container::{COPY_AGAIN, Container, Section};
use crate::error::{Error, ErrorKind, Result};
use crate::prepare::build::read_ahead::Unconverted;
use crate::prepare::build::read_batch::{BatchReading, ReadBatch};
use crate::prepare::names::listed;
use crate::prepare::schema::Schema;
use crate::prepare::source::FileVersion;

/// All parts of a preparation.
pub(in crate::prepare) struct Parts {
    /// In the order of their numbers.
    files: Vec<Arc<PartFile>>,
    /// The batches of each block of each table, by the table's place in the schema; none of the rows of tasks.
    tables: HashMap<usize, Vec<Block>>,
}

/// The file of a part.
struct PartFile {
    path: PathBuf,
    part: Part,
    rows: Section,
}

/// A block of a table.
struct Block {
    /// The place of its part.
    part: usize,
    /// Where its batches begin in the part.
    start: u64,
    /// The rows and the bytes of each batch.
    batches: Vec<(u32, u64)>,
}

/// The batches of a table, in the order of its rows.
pub(in crate::prepare::build) type PartBatches<'a> =
    Box<dyn Iterator<Item = Result<PartBatch>> + Send + 'a>;

/// A batch in a part.
pub(in crate::prepare::build) struct PartBatch {
    file: Arc<PartFile>,
    start: u64,
    bytes: u64,
    rows: u32,
}

impl Parts {
    /// Opens the parts in `folder`, of the preparation that `expected` describes; `schema` has the tables that
    /// tasks add, too.
    ///
    /// # Errors
    /// `Data` when parts are missing, doubled, or of another preparation; `Corrupt` when one is damaged;
    /// `Version` when another version of headwater wrote it.
    pub(in crate::prepare) fn open(
        folder: &Path,
        expected: &Origin,
        schema: &Schema,
    ) -> Result<Self> {
        let mut found: Vec<(PartHead, Arc<PartFile>)> = Vec::new();
        let mut of_another = None;
        for path in paths(folder)? {
            let (mut head, file) = open_part(&path)?;
            let checked = check_schema(&head.origin, expected)
                .and_then(|()| check_files(&head.origin, expected));
            of_another =
                of_another.or(checked.map_err(|error| error.context(path.display())).err());
            // Every part repeats it; memory need not hold it so often.
            head.origin = Origin::default();
            found.push((head, file));
        }
        found.sort_by_key(|(head, _)| head.number);
        check_numbers(folder, &found)?;
        of_another.map_or(Ok(()), Err)?;
        let mut ends = vec![0_u64; found.len()];
        let (mut tables, mut first_block) = (HashMap::new(), 0_u64);
        for (place, (in_schema, table)) in own_tables(schema).enumerate() {
            let mut heads = Vec::new();
            for (head, file) in &found {
                let head = head.tables.get(place).filter(|head| head.table == table.name);
                heads.push(head.ok_or_else(|| {
                    file.corrupt(format_args!("expected the rows of table {:?}", table.name))
                })?);
            }
            let count = heads.first().map_or(0, |head| head.blocks);
            let mut held: Vec<_> = heads.iter().map(|head| head.held.iter()).collect();
            let mut blocks = Vec::new();
            for number in first_block..first_block.saturating_add(count) {
                let part = (number % found.len() as u64) as usize;
                let Some(batches) = held[part].next() else { break };
                let start = ends[part];
                let bytes = batches.iter().map(|&(_, bytes)| u128::from(bytes)).sum::<u128>();
                let end = u128::from(start) + bytes;
                ends[part] = u64::try_from(end).unwrap_or(u64::MAX);
                blocks.push(Block { part, start, batches: batches.clone() });
            }
            let is_whole = blocks.len() as u64 == count;
            for ((head, mut rest), (_, file)) in heads.iter().zip(held).zip(&found) {
                if head.blocks != count || !is_whole || rest.next().is_some() {
                    return Err(file.corrupt(format_args!(
                        "expected its share of {count} blocks of table {:?}, found {} of {}",
                        table.name,
                        head.held.len(),
                        head.blocks
                    )));
                }
            }
            first_block = first_block.saturating_add(count);
            tables.insert(in_schema, blocks);
        }
        for ((_, file), end) in found.iter().zip(ends) {
            if file.rows.len() as u64 != end {
                return Err(file.corrupt(format_args!(
                    "expected {end} bytes of rows, found {}",
                    file.rows.len()
                )));
            }
        }
        Ok(Self { files: found.into_iter().map(|(_, file)| file).collect(), tables })
    }

    /// Returns the batches of the table at `place` in the schema; `None` if parts have no rows of it.
    pub(in crate::prepare::build) fn batches(&self, place: usize) -> Option<PartBatches<'_>> {
        let blocks = self.tables.get(&place)?.iter();
        Some(Box::new(blocks.flat_map(move |block| {
            let mut start = block.start;
            block.batches.iter().map(move |&(rows, bytes)| {
                let batch =
                    PartBatch { file: Arc::clone(&self.files[block.part]), start, bytes, rows };
                start += bytes;
                Ok(batch)
            })
        })))
    }
}

impl PartBatch {
    /// Returns the batch as the first pass takes it.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of such a batch.
    pub(in crate::prepare::build) fn decode(&self, reading: &BatchReading) -> Result<ReadBatch> {
        let (start, bytes) = (self.start as usize, self.bytes as usize);
        let mapped = Mapped { file: Arc::clone(&self.file), start, bytes };
        mapped.file.rows.populate(start, bytes);
        // Checks the digests.
        let checked = mapped.file.rows.get(start, bytes).map(drop);
        checked.map_err(|error| error.remedied(COPY_AGAIN, &self.file.again()))?;
        let bytes = Bytes::from_owner(mapped);
        decode(reading, bytes, self.rows as usize).map_err(|error| self.file.corrupt(error))
    }
}

/// The bytes of a batch in the map of its part. Their memory is given back when the arrays in it are dropped.
struct Mapped {
    file: Arc<PartFile>,
    start: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        // They were read once, so they can be read.
        self.file.rows.get(self.start, self.bytes).unwrap_or_default()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.file.rows.release(self.start, self.bytes);
    }
}

impl Unconverted for PartBatch {
    fn row_count(&self) -> u64 {
        self.rows.into()
    }

    fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl PartFile {
    /// Returns the remedy for a part that cannot be read.
    fn again(&self) -> String {
        format!("; make part {} again", self.part)
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        let (path, again) = (self.path.display(), self.again());
        Error::corrupt(format!("{path}: part {}: {what}{again}", self.part))
    }
}

/// Lists the files of parts in a folder, by name. Hidden files are parts that are being written, or were when
/// their process ended.
fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e| Error::io(folder, "listing", e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
        if path.extension().is_some_and(|of| of == ENDING)
            && !path.file_name().is_some_and(is_hidden)
        {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Error::data(format!(
            "{}: expected parts, such as 1-of-8.{ENDING}, found none; make them with headwater prepare --part \
             I/N --out {}",
            folder.display(),
            folder.display()
        )));
    }
    Ok(paths)
}

/// Opens a part, and reads its head.
fn open_part(path: &Path) -> Result<(PartHead, Arc<PartFile>)> {
    const AGAIN: &str = "; make this part again";
    let again = |error: Error| match error.kind() {
        ErrorKind::NotOurs => Error::not_ours(format!(
            "{}: expected a part, found a file of another kind; move it away",
            path.display()
        )),
        _ => error.remedied(COPY_AGAIN, AGAIN),
    };
    let wrong =
        |e: &dyn std::fmt::Display| Error::corrupt(format!("{}: head: {e}{AGAIN}", path.display()));
    let file = Container::open_alone(path).map_err(again)?;
    let head = file.any_section("head").map_err(again)?;
    let text = head.get(0, head.len()).map_err(again)?;
    let version: HeadVersion = serde_json::from_slice(text).map_err(|e| wrong(&e))?;
    if !version.is_ours() {
        return Err(Error::version(format!(
            "{}: expected a part of headwater {}, found one of headwater {:?} (format {}); make all parts and \
             merge them with one version",
            path.display(),
            env!("CARGO_PKG_VERSION"),
            version.headwater,
            version.format
        )));
    }
    let head: PartHead = serde_json::from_slice(text).map_err(|e| wrong(&e))?;
    let part = Part::new(head.number, head.count).map_err(|e| wrong(&e))?;
    let rows = file.any_section("rows").map_err(again)?;
    Ok((head, Arc::new(PartFile { path: path.to_owned(), part, rows })))
}

/// Checks that the parts are all those of one number, each once.
fn check_numbers(folder: &Path, found: &[(PartHead, Arc<PartFile>)]) -> Result<()> {
    for pair in found.windows(2) {
        let [(_, one), (_, other)] = pair else { continue };
        if one.part.count() != other.part.count() {
            return Err(Error::data(format!(
                "{}: expected the parts of one preparation, found part {} ({}) and part {} ({}); move away those \
                 of the other number of parts",
                folder.display(),
                one.part,
                one.path.display(),
                other.part,
                other.path.display()
            )));
        }
        if one.part == other.part {
            return Err(Error::data(format!(
                "{}: expected each part once, found part {} in {} and {}; move one of them away",
                folder.display(),
                one.part,
                one.path.display(),
                other.path.display()
            )));
        }
    }
    let count = found.first().map_or(0, |(_, file)| file.part.count());
    let has = |number: &u32| found.binary_search_by_key(number, |(head, _)| head.number).is_ok();
    let missing: Vec<_> = (1..=count).filter(|number| !has(number)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|number| format!("{number}/{count}")).collect();
    Err(Error::data(format!(
        "{}: expected {count} parts, found {}; make the others with headwater prepare --part: {}",
        folder.display(),
        found.len(),
        listed(names.iter().map(String::as_str))
    )))
}

/// Checks that a part was read by what the schema says about its tables; names the first field that differs.
fn check_schema(then: &Origin, now: &Origin) -> Result<()> {
    let names = |origin: &Origin| -> Vec<_> {
        origin.schema.iter().map(|table| shown(table.get("name"))).collect()
    };
    let (names_then, names_now) = (names(then), names(now));
    let difference = match names_then == names_now {
        true => (then.schema.iter().zip(&now.schema).zip(&names_now))
            .find_map(|((then, now), name)| difference(&format!("table {name}"), then, now)),
        false => Some(format!(
            "its tables are {}, and now {}",
            names_then.join(", "),
            names_now.join(", ")
        )),
    };
    let Some(difference) = difference else { return Ok(()) };
    Err(Error::data(format!(
        "expected a part that was read by this schema, found one that was read by another: {difference}; make all \
         parts again with this schema, or merge with that of the parts"
    )))
}

/// Describes the first place in which two values differ, from `place` on: then and now.
fn difference(place: &str, then: &Value, now: &Value) -> Option<String> {
    if then == now {
        return None;
    }
    if let (Value::Object(then), Value::Object(now)) = (then, now) {
        let names: BTreeSet<_> = then.keys().chain(now.keys()).collect();
        let of = |object: &Map<String, Value>, name: &str| {
            object.get(name).cloned().unwrap_or(Value::Null)
        };
        let differs = |name: &&String| {
            difference(&format!("{place}, {name}"), &of(then, name), &of(now, name))
        };
        return names.iter().find_map(differs);
    }
    Some(format!("{place}: then {}, now {}", shown(Some(then)), shown(Some(now))))
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

/// Checks that a part was read from the files as they are now.
fn check_files(then: &Origin, now: &Origin) -> Result<()> {
    let now: BTreeMap<&str, _> = now.files.iter().map(|file| (&*file.path, file)).collect();
    let then: BTreeMap<&str, _> = then.files.iter().map(|file| (&*file.path, file)).collect();
    let mut paths = now.keys().chain(then.keys());
    let Some(path) = paths.find(|path| now.get(*path) != then.get(*path)) else { return Ok(()) };
    let shown = |file: Option<&&FileVersion>| {
        file.map_or_else(|| format!("no file {path:?}"), ToString::to_string)
    };
    Err(Error::data(format!(
        "expected a part of the source as it is now, with {}; when the part was read there was {}; if the data has \
         changed, make all parts again; if this is a copy, copy the files with their times (cp -p, rsync -t)",
        shown(now.get(*path)),
        shown(then.get(*path))
    )))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Origin, Parts};
    use crate::container::{Container, ContainerWriter};
    use crate::error::Result;
    use crate::prepare::build::table_columns::TableColumns;
    use crate::prepare::schema::Schema;
    use crate::prepare::source::{Source, open};
    use crate::prepare::{Part, PartOptions, prepare_part};
    use crate::progress::Silent;

    const SCHEMA: &str = r#"
        database = "shop"
        [[table]]
        name = "users"
        key = "id"
        columns = { id = "identifier", age = "numerical", at = "timestamp", vip = "boolean", kind = "categorical", about = "text" }
        references = [{ columns = "kind", to = "users" }]
    "#;

    /// A part of a table of every type, and what its files contain.
    struct Crafted {
        folder: tempfile::TempDir,
        source: Box<dyn Source>,
        schema: Schema,
        rows: Vec<u8>,
        head: String,
    }

    impl Crafted {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path().join("users.csv");
            let row = |id: u32| {
                format!("u{id},{id},2024-01-01,true,u{},a long text of user {id}\n", id / 2)
            };
            let rows: String = (0..9).map(row).collect();
            std::fs::write(&data, format!("id,age,at,vip,kind,about\n{rows},,,,,\n")).unwrap();
            let (source, schema) = (open(&data).unwrap(), Schema::parse(SCHEMA).unwrap());
            let options = PartOptions { threads: Some(1), progress: &Silent };
            let part = Part::new(1, 1).unwrap();
            prepare_part(&*source, &schema, folder.path(), part, &options).unwrap();
            let file = Container::open(&folder.path().join("1-of-1.part")).unwrap();
            let bytes = |name: &str| {
                let section = file.any_section(name).unwrap();
                section.get(0, section.len()).unwrap().to_vec()
            };
            let (rows, head) = (bytes("rows"), String::from_utf8(bytes("head")).unwrap());
            Self { folder, source, schema, rows, head }
        }

        /// Opens a part of these bytes, whose digests are right, and decodes its batches.
        fn read(&self, rows: &[u8], head: &str) -> Result<usize> {
            let folder: &Path = self.folder.path();
            std::fs::remove_file(folder.join("1-of-1.part")).unwrap();
            let mut file = ContainerWriter::create(folder, "1-of-1.part").unwrap();
            file.section("rows", rows).unwrap();
            file.section("head", head.as_bytes()).unwrap();
            file.finish().unwrap();
            let expected = Origin::new(&*self.source, &self.schema)?;
            let parts = Parts::open(folder, &expected, &self.schema)?;
            let key = vec!["id".to_owned()];
            let reading = TableColumns::of(&self.schema.tables[0], &[key])?.reading();
            let batches = parts.batches(0).expect("the table is no task's");
            batches.map(|batch| Ok(batch?.decode(&reading)?.row_count)).sum()
        }
    }

    #[test]
    fn whatever_the_rows_of_a_part_hold_is_a_batch_or_an_error() {
        let crafted = Crafted::new();
        assert_eq!(crafted.read(&crafted.rows, &crafted.head).unwrap(), 10);
        let mut refused = 0;
        for at in 0..crafted.rows.len() {
            for change in [1, 0x80, 0xff] {
                let mut rows = crafted.rows.clone();
                rows[at] ^= change;
                refused += u32::from(crafted.read(&rows, &crafted.head).is_err());
            }
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn whatever_the_head_of_a_part_holds_is_its_rows_or_an_error() {
        let crafted = Crafted::new();
        let length = crafted.rows.len();
        let held = format!("[10,{length}]");
        assert!(crafted.head.contains(&held), "{}", crafted.head);
        for (from, to, words) in [
            (&*held, format!("[9,{length}]"), "expected 9 rows"),
            (&held, format!("[10,{}]", length - 1), "bytes of rows, found"),
            (&held, format!("[10,{}]", u64::MAX), "bytes of rows, found"),
            (&held, format!("{held},[1,{}]", u64::MAX), "bytes of rows, found"),
            (&held, "[10,-1]".into(), "head: "),
            ("\"blocks\":1", "\"blocks\":2".into(), "of 2 blocks of table \"users\", found 1"),
            ("\"blocks\":1", format!("\"blocks\":{}", u64::MAX), "blocks of table \"users\""),
            ("\"blocks\":1", "\"blocks\":0".into(), "expected its share of 0 blocks"),
            (
                "\"table\":\"users\"",
                "\"table\":\"x\"".into(),
                "expected the rows of table \"users\"",
            ),
            ("\"number\":1", "\"number\":2".into(), "expected a part from 1/N to N/N"),
            ("\"format\":1", "\"format\":2".into(), "expected a part of headwater "),
            ("\"number\"", "\"other\"".into(), "head: "),
        ] {
            assert!(crafted.head.contains(from), "{from}: {}", crafted.head);
            let error = crafted.read(&crafted.rows, &crafted.head.replace(from, &to)).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(words), "{to}: {message}");
            assert!(message.contains("1-of-1.part"), "{message}");
        }
        assert!(crafted.read(&crafted.rows, "").is_err());
    }
}
