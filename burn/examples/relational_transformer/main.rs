//! Trains a relational transformer on the churn of the demo shop; goes on where it was stopped or killed.
//!
//! ```text
//! cargo run --release --example relational_transformer -- ../demo/churn --out run
//!     [--resume] [--stop-after STEP] [--workers N] [--seed N] [--help]
//! ```

mod model;
mod saves;
mod training;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use headwater::durable::Disk;
use headwater::plan::{Assignment, Split};
use headwater::sampler::{Aggregates, Children, Settings, Shape, Speed, Texts, Walk};
use headwater::store::Store;
use headwater_burn::{EvaluationLoader, Loader, Tables};

use model::Model;
use training::MICRO_BATCHES;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const USAGE: &str = "usage: relational_transformer STORE --out RUN [--resume] [--stop-after STEP] \
                     [--workers N] [--seed N]";

const HELP: &str = "\
Trains a relational transformer on the task churn of a store, and scores it on val and test.

  STORE              the store: demo/churn of `make demo`
  --out RUN          the folder of the saved steps; without --resume it has none yet
  --resume           goes on from the newest saved step of RUN, and prints which it is
  --stop-after STEP  saves after this step and ends without scores (default: the last step, 400)
  --workers N        the threads of a step; they change no bit (default: 1)
  --seed N           of the model and of the order of the batches (default: 7)
  --help             prints this help";

const STEPS: u64 = 400;
const SAVE_EVERY: u64 = 100;
/// Of the model and of the order of the batches.
const SEED: u64 = 7;

/// The last order with its delivery and its items; of a product no other items, and no single reviews.
fn settings(seed: u64) -> Settings {
    let widths =
        [("orders.customer_id", 1), ("reviews.product_id", 0), ("order_items.product_id", 0)];
    Settings {
        tasks: Some(vec!["churn".to_owned()]),
        walk: Walk::Priority { child_width: 4, children: Children::Latest },
        child_widths: widths.map(|(name, width)| (name.to_owned(), width)).to_vec(),
        aggregates: Aggregates::All,
        shape: Shape {
            batch_size: 8,
            // No context of this walk has more.
            sequence_length: 48,
            sequence_buckets: Vec::new(),
            max_rows: 16,
            compact: false,
            permutations: false,
            texts: Texts::Batch(Vec::new()),
        },
        seed,
        ..Settings::default()
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        print(format_args!("{USAGE}\n\n{HELP}"))
    } else {
        Options::parse(words.into_iter()).and_then(|options| run(&options))
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads the lines wants no more of them, as in `... | head`.
        Err(error) if is_closed_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line, where `println!` would panic when nobody reads it.
fn print(line: fmt::Arguments) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(options: &Options) -> Result<()> {
    let store = Arc::new(Store::open(&options.store)?);
    let device = Device::default();
    device.seed(options.seed);
    let training = device.clone().autodiff();
    let rank = Assignment::new(0, 1)?;
    let loader =
        Loader::new(vec![Arc::clone(&store)], settings(options.seed), rank, Speed::default())?
            .device(training.clone());
    let tables = Tables::new(&store, &training)?;
    let model = Model::new(store.metadata().embedding.dimension as usize, &training);
    let model = train(options, model, &loader, &tables)?;
    if options.last_step() < STEPS {
        return Ok(());
    }
    let (model, tables) = (model.valid(), Tables::new(&store, &device)?);
    for (name, split) in [("val", Split::Val), ("test", Split::Test)] {
        evaluate(name, &model, &loader.evaluation(split).device(device.clone()), &tables)?;
    }
    Ok(())
}

/// Trains up to the last step, and saves on the way.
fn train(options: &Options, model: Model, loader: &Loader, tables: &Tables) -> Result<Model> {
    let out = &options.out;
    let optimizer = training::optimizer();
    let (first, mut model, mut optimizer) = match (options.resume, saves::steps(out)?.last()) {
        (true, _) => saves::restore(&Disk, out, (model, optimizer, loader))?,
        (false, None) => {
            // A run that is killed before its next save goes on from here.
            saves::save(&Disk, out, 0, (&model, &optimizer, loader))?;
            (0, model, optimizer)
        }
        (false, Some(step)) => {
            let out = out.display();
            return Err(format!(
                "--out: expected a folder without saved steps, found step {step} in {out}; say --resume to go \
                 on, or choose another folder"
            )
            .into());
        }
    };
    let last = options.last_step();
    // A new run that stops after step 0 has saved it.
    if options.resume && options.stop_after.is_some_and(|step| step <= first) {
        return Err(format!(
            "--stop-after: expected a step after {first}, the newest saved step of {}, found {last}; set a later \
             step, or leave --stop-after out",
            out.display()
        )
        .into());
    }
    if options.resume {
        print(format_args!("goes on after step {first}"))?;
    }
    let steps = last.saturating_sub(first);
    let loader = loader.clone().steps_per_epoch((steps * MICRO_BATCHES as u64).max(1));
    let mut batches = loader.iter();
    let begin = Instant::now();
    let mut waited = Duration::ZERO;
    for step in first + 1..=last {
        let asked = Instant::now();
        let own = batches.by_ref().take(MICRO_BATCHES).collect::<Result<Vec<_>, _>>()?;
        waited += asked.elapsed();
        let rate = training::rate(step, STEPS);
        let loss;
        (model, loss) =
            training::step(model, &mut optimizer, &own, tables, (options.workers, rate));
        print(format_args!("step {step} loss {loss}"))?;
        if step % SAVE_EVERY == 0 || step == last {
            saves::save(&Disk, out, step, (&model, &optimizer, &loader))?;
        }
    }
    let (all, waited) = (begin.elapsed().as_secs_f64(), waited.as_secs_f64());
    print(format_args!("{steps} steps in {all:.1} s, {waited:.3} s of them for batches"))?;
    Ok(model)
}

/// Prints how well the model tells the seeds of a split apart.
fn evaluate(name: &str, model: &Model, loader: &EvaluationLoader, tables: &Tables) -> Result<()> {
    let mut predicted = Vec::new();
    for batch in loader.iter() {
        let batch = batch?;
        let targets = batch.targets(tables);
        let values = |tensor: Tensor<2>| tensor.try_into_vec_as::<f32>();
        let (truths, weights) = (values(targets.boolean_values)?, values(targets.boolean_weights)?);
        let logits = model.logits(&batch, tables).try_into_vec_as::<f32>()?;
        let seeds = logits.into_iter().zip(truths).zip(weights);
        predicted.extend(seeds.filter(|(_, weight)| *weight > 0.0).map(|(seed, _)| seed));
    }
    let seeds = predicted.len();
    let mean = predicted.iter().map(|(_, truth)| f64::from(*truth)).sum::<f64>() / seeds as f64;
    let auroc = auroc(predicted);
    print(format_args!(
        "{name} AUROC {auroc:.3} over {seeds} seeds; the mean of their labels is {mean:.3}"
    ))
}

/// Returns the share of pairs, a true and a false one, in which the true one has the greater logit; equal logits
/// count half.
fn auroc(mut predicted: Vec<(f32, f32)>) -> f64 {
    predicted.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let (mut below, mut won, mut truths) = (0.0, 0.0, 0.0);
    for equal in predicted.chunk_by(|one, other| one.0 == other.0) {
        let own = equal.iter().filter(|(_, truth)| *truth > 0.5).count() as f64;
        let others = equal.len() as f64 - own;
        won += own * (below + others / 2.0);
        (below, truths) = (below + others, truths + own);
    }
    won / (truths * below)
}

struct Options {
    store: PathBuf,
    out: PathBuf,
    resume: bool,
    stop_after: Option<u64>,
    workers: usize,
    seed: u64,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut store, mut out, mut resume) = (None, None, false);
        let (mut stop_after, mut workers, mut seed) = (None, 1, SEED);
        while let Some(word) = words.next() {
            let mut value = || match words.next() {
                Some(value) if !value.is_empty() && !value.starts_with("--") => Ok(value),
                found => {
                    let found = found.map_or("none".to_owned(), |word| format!("{word:?}"));
                    Err(format!("{word}: expected a value, found {found}; {USAGE}"))
                }
            };
            match word.as_str() {
                "--out" => out = Some(value()?.into()),
                "--resume" => resume = true,
                "--stop-after" => stop_after = Some(number(&word, &value()?)?),
                "--workers" => workers = number(&word, &value()?)?,
                "--seed" => seed = number(&word, &value()?)?,
                _ if store.is_none() && !word.starts_with('-') => store = Some(word.into()),
                _ => return Err(format!("unknown argument {word:?}; {USAGE}").into()),
            }
        }
        if !(1..=MICRO_BATCHES).contains(&workers) {
            return Err(format!(
                "--workers: expected 1 to {MICRO_BATCHES} threads, one for each micro-batch of a step, found \
                 {workers}"
            )
            .into());
        }
        if let Some(step) = stop_after.filter(|step| *step > STEPS) {
            return Err(format!(
                "--stop-after: expected at most {STEPS}, the last step, found {step}; set an earlier step, or \
                 leave --stop-after out"
            )
            .into());
        }
        let (store, out) = store.zip(out).ok_or(format!("expected a store and --out; {USAGE}"))?;
        Ok(Self { store, out, resume, stop_after, workers, seed })
    }

    fn last_step(&self) -> u64 {
        self.stop_after.unwrap_or(STEPS)
    }
}

/// Returns the value of an option as a number.
fn number<T: FromStr>(option: &str, value: &str) -> Result<T> {
    let wrong =
        |_| format!("{option}: expected a whole number of at least 0, found {value:?}; {USAGE}");
    Ok(value.parse().map_err(wrong)?)
}
