//! Rows of two versions of a file are never folded together.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater::fold::Gram;
use headwater::matrix::{Element, Matrix, MatrixFormat};
use headwater::plan::Assignment;
use headwater::progress::Silent;
use headwater::reducer::{
    Blocks, Checkpoints, Job, OfMatrix, Reduction, Source, Spool, WorkHooks, fold_portion,
};
use headwater::{Error, ErrorKind};
use proptest::prelude::*;

use crate::{COLUMNS, Counting, bits};

const CHUNK_ROWS: u64 = 1000;
const ROWS_OF_FILE: u64 = 20_000;
const HOOKS: WorkHooks<'static> =
    WorkHooks { progress: &Silent, stop: &|| false, notice: &|_: &Error| {} };

/// Two files of one matrix, so long that samples of their bytes leave out most rows.
struct Data {
    folder: tempfile::TempDir,
}

impl Data {
    fn new() -> Self {
        let data = Self { folder: tempfile::tempdir().unwrap() };
        for file in 0..2 {
            let first = file * ROWS_OF_FILE * COLUMNS as u64;
            let numbers = first..first + ROWS_OF_FILE * COLUMNS as u64;
            let bytes: Vec<u8> = numbers.flat_map(|n| (n as f64).sin().to_le_bytes()).collect();
            fs::write(data.path(file as usize), bytes).unwrap();
        }
        data
    }

    fn path(&self, file: usize) -> PathBuf {
        self.folder.path().join(format!("x-{file}.f64"))
    }

    /// Changes a number in three rows of a file, in place, and sets its time of writing back.
    fn change(&self, file: usize) {
        let path = self.path(file);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        let mut opened = OpenOptions::new().write(true).open(&path).unwrap();
        for row in [3, 4, 7000] {
            // Between the samples: the first 4 KiB are one.
            let at = (row + 300) * COLUMNS as u64 * 8;
            opened.seek(SeekFrom::Start(at)).unwrap();
            opened.write_all(&0.5_f64.to_le_bytes()).unwrap();
        }
        opened.set_modified(written).unwrap();
    }

    /// Puts a copy in the place of a file.
    fn copy(&self, file: usize) {
        let (path, copy) = (self.path(file), self.folder.path().join("copy"));
        fs::copy(&path, &copy).unwrap();
        fs::rename(copy, path).unwrap();
    }

    /// Opens the files as they are now.
    fn open(&self) -> (Job, OfMatrix<Gram>) {
        let format = MatrixFormat::Raw { element: Element::F64, columns: COLUMNS };
        let matrix = Matrix::open(&[self.path(0), self.path(1)], &format).unwrap();
        let rows = (matrix.rows(), CHUNK_ROWS);
        let data = matrix.identity().0;
        let job = Job::of_matrix("gram", (COLUMNS, Element::F64), data, rows, &[]).unwrap();
        let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let source = OfMatrix::new(Gram::new(COLUMNS).unwrap(), matrix, job.clone(), threads);
        (job, source)
    }

    fn portion(&self, chunks: Range<u64>) -> Vec<u8> {
        let (job, source) = self.open();
        fold_portion(&job, &source, chunks, &|| false).unwrap()
    }

    fn reduction(&self, same_data: bool) -> Reduction<Gram> {
        let (job, source) = self.open();
        Reduction::new(job, Arc::clone(source.statistic()))
            .of_files(source.opened_versions(), same_data)
    }

    /// The sums of all rows, and the digest of the rows.
    fn whole(&self) -> (Vec<u64>, headwater::Digest) {
        let mut whole = self.reduction(false);
        whole.receive(&self.portion(0..40)).unwrap();
        (whole_bits(&whole), whole.rows_digest().unwrap())
    }
}

fn whole_bits(whole: &Reduction<Gram>) -> Vec<u64> {
    bits(&whole.whole().unwrap())
}

#[track_caller]
fn refused(error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::PlanMismatch, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word} is not in: {error}");
    }
}

#[test]
fn p6_portions_of_two_versions_of_a_file_are_refused_with_file_and_rows() {
    let data = Data::new();
    let before = data.portion(0..8);
    data.change(0);
    let mut whole = data.reduction(false);
    let error = whole.receive(&before).unwrap_err();
    refused(&error, &["rows 0 to 7999 (chunks 0 to 7)", "x-0.f64", "--same-data", "changed "]);
    assert_eq!(whole.covered_count(), 0, "an error changes nothing");

    // Who has no file of his own compares the portions with one another.
    let (job, source) = data.open();
    let mut elsewhere = Reduction::new(job, Arc::clone(source.statistic()));
    elsewhere.receive(&before).unwrap();
    refused(&elsewhere.receive(&data.portion(8..20)).unwrap_err(), &["x-0.f64", "rows 8000"]);
    // The other file is as it was.
    elsewhere.receive(&data.portion(20..40)).unwrap();
}

#[test]
fn p6_same_data_reads_the_rows_of_another_version_and_compares_them() {
    let data = Data::new();
    let (expected, rows) = data.whole();
    let [early, before] = [0..8, 8..16].map(|chunks| data.portion(chunks));
    data.copy(0);
    let mut whole = data.reduction(true);
    whole.receive(&before).unwrap();
    whole.receive(&data.portion(0..8)).unwrap();
    whole.receive(&data.portion(16..40)).unwrap();
    let (_, source) = data.open();
    let progress = Counting::default();
    assert_eq!(whole.verify_same_data(&source, &progress).unwrap(), 8000);
    assert_eq!(whole.verify_same_data(&source, &progress).unwrap(), 0, "it was compared");
    assert_eq!(progress.told(), [("comparing chunks".to_owned(), Some(8), 8)]);
    assert_eq!(data.reduction(false).verify_same_data(&source, &Silent).unwrap(), 0);
    assert_eq!((whole_bits(&whole), whole.rows_digest().unwrap()), (expected, rows));
    // What was verified is of this process's version now.
    data.reduction(false).receive(&whole.checkpoint().unwrap()).unwrap();

    data.change(0);
    let mut whole = data.reduction(true);
    whole.receive(&early).unwrap();
    let (_, source) = data.open();
    let error = whole.verify_same_data(&source, &Silent).unwrap_err();
    refused(&error, &["rows 0 to 7999", "x-0.f64", "not those that were folded before"]);
}

/// With --same-data, a checkpoint may be written before the rows of two versions are compared.
#[test]
fn p6_a_portion_of_two_versions_is_refused_also_where_the_file_is_not() {
    let data = Data::new();
    let before = data.portion(0..8);
    data.change(0);
    let mut mixed = data.reduction(true);
    mixed.receive(&before).unwrap();
    mixed.receive(&data.portion(8..20)).unwrap();
    let checkpoint = mixed.checkpoint().unwrap();
    let (job, source) = data.open();
    let mut elsewhere = Reduction::new(job, Arc::clone(source.statistic()));
    refused(&elsewhere.receive(&checkpoint).unwrap_err(), &["x-0.f64", "--same-data"]);
    let mut elsewhere = elsewhere.of_files(Vec::new(), true);
    elsewhere.receive(&checkpoint).unwrap();
    refused(
        &elsewhere.verify_same_data(&source, &Silent).unwrap_err(),
        &["x-0.f64", "digests differ"],
    );
}

#[test]
fn p6_a_file_that_changes_while_it_is_folded_is_refused() {
    for change in [Data::change as fn(&Data, usize), Data::copy, |data, file| {
        fs::remove_file(data.path(file)).unwrap();
    }] {
        let data = Data::new();
        let (job, source) = data.open();
        change(&data, 1);
        fold_portion(&job, &source, 0..20, &|| false).unwrap();
        let error = fold_portion(&job, &source, 19..21, &|| false).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Data | ErrorKind::Io), "{error}");
        assert!(error.to_string().contains("x-1.f64"), "{error}");
    }
}

#[test]
fn p6_a_resume_is_refused_after_rows_have_changed() {
    let data = Data::new();
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path()).unwrap();
    let mut begun = data.reduction(false);
    begun.receive(&data.portion(0..13)).unwrap();
    checkpoints.write(&begun).unwrap();
    data.change(0);
    let error = checkpoints.resume(&mut data.reduction(false)).unwrap_err();
    refused(&error, &["checkpoint", "x-0.f64", "rows 0 to 12999"]);
    let mut trusting = data.reduction(true);
    checkpoints.resume(&mut trusting).unwrap();
    trusting.verify_same_data(&data.open().1, &Silent).unwrap_err();
}

fn spool(data: &Data, folder: &Path) -> Spool {
    let (job, _) = data.open();
    let blocks = Blocks::new(job.chunk_count(), 2).unwrap();
    Spool::create(folder, &job, &blocks, b"{}").unwrap()
}

fn work(data: &Data, spool: &Spool, rank: u64) -> headwater::Result<()> {
    let (job, source) = data.open();
    spool.work((&job, &source), Assignment::new(rank, 2)?, &HOOKS).map(drop)
}

fn fold(data: &Data, spool: &Spool) -> headwater::Result<Vec<u64>> {
    let (job, source) = data.open();
    spool.fold((&job, &source), &Silent).map(|(whole, _)| whole_bits(&whole))
}

#[test]
fn p6_a_spool_whose_rows_change_between_two_ranks_is_refused() {
    let data = Data::new();
    let folder = tempfile::tempdir().unwrap();
    let one = spool(&data, folder.path());
    let expected = data.whole().0;
    work(&data, &one, 0).unwrap();
    data.copy(0);
    work(&data, &one, 1).unwrap();
    refused(&fold(&data, &one).unwrap_err(), &["x-0.f64", "block-000000000000.portion"]);
    refused(&work(&data, &one, 0).unwrap_err(), &["x-0.f64", "block-000000000000"]);
    let opened = Spool::open(folder.path()).unwrap();
    refused(&fold(&data, &opened).unwrap_err(), &["x-0.f64", "block-000000000000.portion"]);
    let one = one.same_data(true);
    work(&data, &one, 0).unwrap();
    assert_eq!(fold(&data, &one).unwrap(), expected);
    data.change(0);
    refused(&fold(&data, &one).unwrap_err(), &["x-0.f64", "digests differ"]);
    refused(&work(&data, &one, 0).unwrap_err(), &["x-0.f64", "digests differ"]);
}

/// The digest of the rows of a file of these numbers, folded in blocks.
fn rows_digest(numbers: &[f64], block: u64) -> headwater::Digest {
    let file = tempfile::NamedTempFile::new().unwrap();
    File::write_all(&mut file.reopen().unwrap(), bytemuck::cast_slice(numbers)).unwrap();
    let format = MatrixFormat::Raw { element: Element::F64, columns: COLUMNS };
    let matrix = Matrix::open(&[file.path().to_owned()], &format).unwrap();
    let rows = (matrix.rows(), 3);
    let job = Job::of_matrix("gram", (COLUMNS, Element::F64), "rows", rows, &[]).unwrap();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let source = OfMatrix::new(Gram::new(COLUMNS).unwrap(), matrix, job.clone(), threads);
    let mut whole = Reduction::new(job.clone(), Arc::clone(source.statistic()));
    let starts: Vec<u64> = (0..job.chunk_count()).step_by(block as usize).collect();
    for &start in starts.iter().rev() {
        let chunks = start..(start + block).min(job.chunk_count());
        whole.receive(&fold_portion(&job, &source, chunks, &|| false).unwrap()).unwrap();
    }
    whole.rows_digest().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Blocks, and with them ranks, do not change the digest of the rows; any changed bit does.
    #[test]
    fn p1_p6_the_digest_of_rows_depends_on_every_bit_of_them_alone(
        rows in 1_u64..80, block in 1_u64..30, at in any::<prop::sample::Index>(), bit in 0_u32..64,
    ) {
        let mut numbers: Vec<f64> =
            (0..rows * COLUMNS as u64).map(|n| f64::from_bits(n.wrapping_mul(0x9e37_79b9))).collect();
        let digest = rows_digest(&numbers, 1);
        prop_assert_eq!(digest, rows_digest(&numbers, block));
        let at = at.index(numbers.len());
        numbers[at] = f64::from_bits(numbers[at].to_bits() ^ (1 << bit));
        prop_assert_ne!(digest, rows_digest(&numbers, block));
    }
}
