//! The manifest of a matrix: the list of all its files, for machines that hold some of them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::names::learn_names;
use super::part::{Form, Part, check_columns};
use super::{Element, MatrixFormat, is_manifest};
use crate::bytes::Digest;
use crate::durable::{Disk, write_file};
use crate::error::{Context, Error, Result};
use crate::files::read_file;

/// The version of the manifest's format.
const VERSION: u32 = 1;

/// Lists the files of a matrix with their numbers of rows and digests.
///
/// With a manifest, a machine that has some of the files knows the numbers of their rows in the
/// whole matrix, and all machines agree on the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    headwater_matrix: u32,
    format: MatrixFormat,
    element: Element,
    columns: usize,
    /// The names of the columns, if a file has them. Older manifests leave them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    files: Vec<ListedFile>,
}

/// One file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListedFile {
    /// Relative to the manifest's folder.
    path: String,
    rows: u64,
    digest: Digest,
}

impl Manifest {
    /// Writes the manifest of these files to `path`, in their order. Each file exists on this
    /// machine, or is a manifest (`.json`) that was written where its files are. Files below the
    /// folder of `path` are listed relative to it, others as given.
    ///
    /// # Errors
    /// Those of [`super::Matrix::open`], `InvalidArgument` for files of different shapes, types or
    /// names of columns and for a file name that is not UTF-8, and `Io`.
    pub fn write(path: &Path, files: &[PathBuf], format: &MatrixFormat) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut whole: Option<Self> = None;
        for file in files {
            let one = if is_manifest(file) {
                Self::read(file)?.moved(file.parent().unwrap_or(Path::new("")), folder)?
            } else {
                Self::of(file, format, folder)?
            };
            match &mut whole {
                None => whole = Some(one),
                Some(whole) => whole.append(one).context(|| file.display().to_string())?,
            }
        }
        let text = serde_json::to_vec_pretty(&whole);
        let text = text.map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
        write_file(&Disk, path, &text)
    }

    /// Returns the manifest of one file, relative to a folder.
    fn of(file: &Path, format: &MatrixFormat, folder: &Path) -> Result<Self> {
        let part = Part::open(file, format)?;
        let path = name_from(folder, file)?;
        let listed = ListedFile { path, rows: part.form.rows, digest: part.digest() };
        Ok(Self {
            headwater_matrix: VERSION,
            format: format.clone(),
            element: part.form.element,
            columns: part.form.columns,
            names: part.names().map(<[String]>::to_vec),
            files: vec![listed],
        })
    }

    /// Rewrites the paths relative to another folder.
    fn moved(mut self, from: &Path, to: &Path) -> Result<Self> {
        for file in &mut self.files {
            file.path = name_from(to, &file.path_in(from))?;
        }
        Ok(self)
    }

    /// Appends the files of `other`.
    fn append(&mut self, other: Self) -> Result<()> {
        let form =
            |m: &Self| format!("{} columns of {}, {:?}", m.columns, m.element.name(), m.format);
        if form(self) != form(&other) {
            return Err(Error::invalid(format!(
                "expected {}, as in the files before, found {}; all files of a matrix have the \
                same columns, type and format",
                form(self),
                form(&other)
            )));
        }
        if let Some(names) = other.names() {
            learn_names(&mut self.names, names)?;
        }
        if let Some(twice) =
            other.files.iter().find(|o| self.files.iter().any(|f| f.path == o.path))
        {
            return Err(Error::invalid(format!(
                "{}: listed twice; rename the files so that each machine's have names of their own",
                twice.path
            )));
        }
        self.files.extend(other.files);
        Ok(())
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = read_file(path)?;
        // The version first: another one may have other fields.
        let found: Result<serde_json::Value, _> = serde_json::from_slice(&text);
        let version = found.as_ref().ok().and_then(|value| value.get("headwater_matrix")?.as_u64());
        let place = || path.display().to_string();
        match version {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(Error::version(format!(
                    "expected a matrix manifest of version {VERSION}, found version {version}; \
                    write the manifest again"
                )))
                .context(place);
            }
            None => {
                let why = found.err().map(|e| format!(" ({e})")).unwrap_or_default();
                return Err(Error::not_ours(format!(
                    "expected a matrix manifest, found no JSON with \"headwater_matrix\"{why}"
                )))
                .context(place);
            }
        }
        let read: Result<Self, _> = serde_json::from_slice(&text);
        let manifest = read
            .map_err(|e| Error::corrupt(format!("the manifest is damaged: {e}; write it again")))
            .context(place)?;
        check_columns(manifest.columns).context(place)?;
        match manifest.names() {
            Some(names) if names.len() != manifest.columns => Err(Error::corrupt(format!(
                "the manifest is damaged: expected {} column names, found {}; write it again",
                manifest.columns,
                names.len()
            )))
            .context(place),
            _ => Ok(manifest),
        }
    }

    pub(super) fn element(&self) -> Element {
        self.element
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the names of the columns, if the manifest has them. An older manifest has them only
    /// if the columns were chosen by name.
    pub(super) fn names(&self) -> Option<&[String]> {
        match &self.format {
            MatrixFormat::Parquet(Some(chosen)) => Some(chosen),
            _ => self.names.as_deref(),
        }
    }

    pub(super) fn files(&self) -> &[ListedFile] {
        &self.files
    }

    /// Opens a listed file, if it exists, and compares it with the manifest.
    pub(super) fn open(&self, folder: &Path, listed: &ListedFile) -> Result<Option<Part>> {
        let path = listed.path_in(folder);
        let is_there = path.try_exists().map_err(|e| Error::io(&path, "looking for", e))?;
        if !is_there {
            return Ok(None);
        }
        let part = Part::open(&path, &self.format)?;
        let expected = Form { element: self.element, rows: listed.rows, columns: self.columns };
        let describe = |form: Form| {
            format!("{} rows of {} columns of {}", form.rows, form.columns, form.element.name())
        };
        let (wanted, found) = if part.form == expected {
            let digest = part.digest();
            if digest == listed.digest {
                return Ok(Some(part));
            }
            (format!("rows with digest {}", listed.digest), digest.to_string())
        } else {
            (describe(expected), describe(part.form))
        };
        Err(Error::mismatch(format!(
            "{}: expected {wanted}, as in the manifest, found {found}; restore the file that the \
             manifest lists, or write the manifest again",
            path.display()
        )))
    }
}

/// Returns the path of a file relative to a folder.
fn name_from(folder: &Path, file: &Path) -> Result<String> {
    let name = file.strip_prefix(folder).unwrap_or(file);
    name.to_str().map(ToOwned::to_owned).ok_or_else(|| {
        let name = file.display();
        Error::invalid(format!("{name}: expected a file name in UTF-8; rename the file"))
    })
}

impl ListedFile {
    pub(super) fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(&self.path)
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }
}
