//! Checks the path of a result: its folder exists, and the result overwrites none of its inputs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::{found_at, is_folder, try_read, try_read_beginning};

/// The files of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A `.npy` with the result, and a .json with the summary beside it.
    Matrix,
    /// A .json with the result and the summary.
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

/// Checks the path of a result, and of the .json beside it, before the fold starts.
///
/// # Errors
/// As [`check_file`], and `InvalidArgument` when a matrix has the extension .json or statistics of columns
/// have .npy, and when one of the two files exists and is not of an earlier result of this kind.
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
    } else if out.extension().is_some_and(|end| end == "npy") {
        return Err(Error::invalid(format!(
            "--out {}: expected a name for statistics of columns, which are no array, such as {}",
            out.display(),
            json.display()
        )));
    }
    check_file(out, &json, inputs)?;
    if is_earlier_summary(&json, kind) {
        return Ok(());
    }
    for (what, file) in [("result", out), ("summary", &json)] {
        let is_written = kind == Kind::Matrix || file == json;
        // A result whose summary was not written is still an array.
        if is_written && found_at(file)?.is_some_and(|found| found.len() > 0) && !is_array(file)? {
            return Err(Error::invalid(format!(
                "--out {}: the {what} would overwrite {}, which is not an earlier {what} of this kind; \
                 choose another name, or remove that file",
                out.display(),
                file.display()
            )));
        }
    }
    Ok(())
}

/// Whether a file begins as an array of NumPy.
fn is_array(file: &Path) -> Result<bool> {
    const MAGIC: &[u8] = b"\x93NUMPY";
    let beginning = try_read_beginning(file, MAGIC.len());
    Ok(beginning.map_err(|e| Error::io(file, "reading", e))? == MAGIC)
}

/// Whether a .json is the summary of an earlier result.
fn is_earlier_summary(json: &Path, kind: Kind) -> bool {
    let text = try_read(json).ok();
    let summary = text.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    summary.is_some_and(|summary| {
        // The digest alone is not enough: other JSON files may have one.
        let statistic = summary.get("job").and_then(|job| job.get("statistic"));
        let is_ours = statistic.is_some_and(serde_json::Value::is_string)
            && summary.get("fingerprint").is_some()
            && summary.get("digest").is_some();
        is_ours && summary.get("result").is_some() == (kind == Kind::Columns)
    })
}

/// Checks that `--out out` may write `file`.
///
/// # Errors
/// `InvalidArgument` when `out` names no file, when its folder does not exist, and when `file` is one of
/// the `inputs` or exists as something else than a file.
pub(super) fn check_file<'a>(
    out: &Path,
    file: &Path,
    mut inputs: impl Iterator<Item = &'a Path>,
) -> Result<()> {
    // `res/` has a file name for `Path`, but the .json appended to it would be hidden in the folder.
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
    if !is_folder(folder)? {
        return Err(Error::invalid(format!(
            "--out {}: expected the folder {} to exist; create it first",
            out.display(),
            folder.display()
        )));
    }
    let metadata = match fs::symlink_metadata(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|e| Error::io(file, "examining", e))?,
    };
    if !metadata.is_file() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_the_extension_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, wrong, right) in
            [(Kind::Columns, "m.npy", "m.json"), (Kind::Matrix, "m.json", "m.npy")]
        {
            let check = |name| check_out(&folder.path().join(name), std::iter::empty(), kind);
            let error = check(wrong).unwrap_err().to_string();
            let right_path = folder.path().join(right);
            assert!(error.contains(&format!("such as {}", right_path.display())), "{error}");
            check(right).unwrap();
        }
    }
}
