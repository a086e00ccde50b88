//! Where a result may go: to a folder that is there, and over nothing that it was made of.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// What goes to a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A `.npy`, and a .json beside it that says what it is.
    Matrix,
    /// The .json, and nothing else.
    Columns,
}

/// The .json of a result: `g.json` of `g.npy` and `g.json`, `g.1.json` of `g.1`.
pub(super) fn json_of(out: &Path) -> PathBuf {
    if out.extension().is_some_and(|end| end == "npy" || end == "json") {
        return out.with_extension("json");
    }
    let mut name = out.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Refuses a place for a result, and for the .json beside it, before anything is folded.
///
/// # Errors
/// As [`check_file`], and `InvalidArgument` for a matrix that is called a .json, and where the .json
/// beside it is there, and was not left by an earlier result of its kind.
pub(super) fn check_out<'a>(
    out: &Path,
    inputs: impl Iterator<Item = &'a Path> + Clone,
    kind: Kind,
) -> Result<()> {
    let json = json_of(out);
    if kind == Kind::Matrix {
        if json == out {
            return Err(Error::invalid(format!(
                "--out {}: expected a name for a matrix, such as {}; the .json beside it holds the \
                 summary",
                out.display(),
                out.with_extension("npy").display()
            )));
        }
        check_file(out, out, inputs.clone())?;
    }
    check_file(out, &json, inputs)?;
    // What was named may be written over; what lies beside it was not.
    if json == out || !json.exists() || is_left_by(&json, kind) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "--out {}: the summary would overwrite {}, which is not an earlier summary of this kind; \
         choose another name, or remove that file",
        out.display(),
        json.display()
    )))
}

/// Whether a .json is that of an earlier result.
fn is_left_by(json: &Path, kind: Kind) -> bool {
    let text = fs::read(json).ok();
    let told = text.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    told.is_some_and(|told| {
        // By its digest alone, any JSON that has one would pass.
        let statistic = told.get("job").and_then(|job| job.get("statistic"));
        let is_ours = statistic.is_some_and(serde_json::Value::is_string)
            && told.get("fingerprint").is_some()
            && told.get("digest").is_some();
        is_ours && told.get("result").is_some() == (kind == Kind::Columns)
    })
}

/// Refuses to write a `file` that `--out out` brings with it.
///
/// # Errors
/// `InvalidArgument` when `out` has no name of a file, when the folder is not there, when it is one of
/// the `inputs`, or there as anything but a file.
pub(super) fn check_file<'a>(
    out: &Path,
    file: &Path,
    mut inputs: impl Iterator<Item = &'a Path>,
) -> Result<()> {
    // `res/` has one for a path, and what is put behind it would be hidden in the folder.
    let names_file = out
        .file_name()
        .is_some_and(|name| out.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes()));
    if !names_file {
        return Err(Error::invalid(format!(
            "--out {}: expected the name of a file, found that of a folder; append a file name",
            out.display()
        )));
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(Error::invalid(format!(
            "--out {}: expected the folder {} to exist; create it first",
            out.display(),
            folder.display()
        )));
    }
    let Ok(there) = fs::symlink_metadata(file) else { return Ok(()) };
    if !there.is_file() {
        return Err(Error::invalid(format!(
            "--out {}: expected a file or nothing at {}, found something else; choose another name",
            out.display(),
            file.display()
        )));
    }
    let own = fs::canonicalize(file).ok();
    if own.is_some() && inputs.any(|input| fs::canonicalize(input).ok() == own) {
        return Err(Error::invalid(format!(
            "--out {}: the result would overwrite its input {}; choose another name",
            out.display(),
            file.display()
        )));
    }
    Ok(())
}
