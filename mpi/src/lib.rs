//! The reducer's wire over MPI.
//!
//! A message is sent as its length and then in pieces, so that no count exceeds 32 bits. Every return
//! code of MPI is checked. With Open MPI's `--with-ft ulfm` the death of a rank is an event; without it,
//! MPI ends the job.
#![expect(unsafe_code, reason = "MPI is a library of C; rsmpi's safe calls drop its errors")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, transmute};

use headwater::internal::{filled, reserve};
use headwater::reducer::wire::{Event, Ranks, Wire};
use headwater::{Context, Error, ErrorKind, Result};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::topology::Communicator;

const TAG: c_int = 17;
const PIECE_BYTES: usize = 16 << 20;
const LENGTH_BYTES: usize = 8;

/// Open MPI's error classes for the death of a rank.
const PROCESS_FAILED: c_int = 75;
const PROCESS_FAILED_PENDING: c_int = 76;

/// All ranks of `MPI_COMM_WORLD`.
pub struct World {
    universe: Universe,
    communicator: ffi::MPI_Comm,
    rank: u32,
    size: u32,
    sending: VecDeque<Sending>,
    receiving: BTreeMap<u32, Incoming>,
    fault_tolerance: Option<FaultTolerance>,
    lost: BTreeSet<u32>,
    /// The lost ranks that [`Wire::poll`] has not reported yet.
    unreported: VecDeque<u32>,
}

/// A message that is being sent. Its bytes must not move until all requests are done.
struct Sending {
    to: u32,
    requests: VecDeque<ffi::MPI_Request>,
    _bytes: Vec<u8>,
    _length: Box<[u8; LENGTH_BYTES]>,
}

/// A message of which some pieces have arrived.
struct Incoming {
    length: usize,
    bytes: Vec<u8>,
}

/// The calls of Open MPI by which a job survives the death of a rank; other MPIs lack them.
#[derive(Clone, Copy)]
struct FaultTolerance {
    acknowledge: unsafe extern "C" fn(ffi::MPI_Comm) -> c_int,
    acknowledged: unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int,
}

/// Initialises MPI, for [`headwater::cli::reduce::main`].
///
/// # Errors
/// Those of [`World::join`].
pub fn join() -> Result<Box<dyn Ranks>> {
    Ok(Box::new(World::join()?))
}

impl World {
    /// Initialises MPI.
    ///
    /// # Errors
    /// `Shutdown` when MPI was initialised before, `Io` when a call of MPI fails.
    pub fn join() -> Result<Self> {
        let (universe, _) =
            mpi::initialize_with_threading(Threading::Funneled).ok_or_else(|| {
                Error::new(ErrorKind::Shutdown, "MPI is already initialised in this process")
            })?;
        let world = universe.world();
        // SAFETY: A predefined communicator, and a predefined handler.
        let communicator = unsafe { ffi::RSMPI_COMM_WORLD };
        // SAFETY: As above; MPI is initialised.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(communicator, ffi::RSMPI_ERRORS_RETURN) };
        let (rank, size) = (world.rank() as u32, world.size() as u32);
        let is_fault_tolerant = std::env::var("OMPI_MCA_mpi_ft_enable").is_ok_and(|on| on != "0");
        let world = Self {
            universe,
            communicator,
            rank,
            size,
            sending: VecDeque::new(),
            receiving: BTreeMap::new(),
            fault_tolerance: is_fault_tolerant.then(FaultTolerance::find).flatten(),
            lost: BTreeSet::new(),
            unreported: VecDeque::new(),
        };
        world.check(code, "setting the error handler")?;
        Ok(world)
    }

    fn check(&self, code: c_int, action: &str) -> Result<()> {
        if code == ffi::MPI_SUCCESS as c_int {
            return Ok(());
        }
        let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize];
        let mut length = 0;
        // SAFETY: MPI writes a string of at most this length, with its NUL.
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        Err(Error::new(ErrorKind::Io, format!("rank {}: {action} over MPI: {text}", self.rank)))
    }

    /// Whether `code` reports the death of a rank.
    fn is_process_failure(code: c_int) -> bool {
        let mut class = 0;
        // SAFETY: MPI accepts any code here.
        unsafe { ffi::MPI_Error_class(code, &raw mut class) };
        class == PROCESS_FAILED || class == PROCESS_FAILED_PENDING
    }

    /// Records all ranks that have died, when `code` reports a death.
    fn acknowledge(&mut self, code: c_int, action: &str) -> Result<()> {
        let Some(fault_tolerance) = self.fault_tolerance else { return self.check(code, action) };
        let mut dead = MaybeUninit::uninit();
        let mut world = MaybeUninit::uninit();
        // SAFETY: Both groups are written before they are read, and freed once.
        let ranks = unsafe {
            self.check((fault_tolerance.acknowledge)(self.communicator), "acknowledging a death")?;
            let code = (fault_tolerance.acknowledged)(self.communicator, dead.as_mut_ptr());
            self.check(code, "listing the ranks that died")?;
            let code = ffi::MPI_Comm_group(self.communicator, world.as_mut_ptr());
            self.check(code, "listing the ranks")?;
            let (mut dead, mut world) = (dead.assume_init(), world.assume_init());
            let mut count = 0;
            ffi::MPI_Group_size(dead, &raw mut count);
            let places: Vec<c_int> = (0..count).collect();
            let mut ranks = vec![0; places.len()];
            let code = ffi::MPI_Group_translate_ranks(
                dead,
                count,
                places.as_ptr(),
                world,
                ranks.as_mut_ptr(),
            );
            ffi::MPI_Group_free(&raw mut dead);
            ffi::MPI_Group_free(&raw mut world);
            self.check(code, "listing the ranks that died")?;
            ranks
        };
        ranks.into_iter().for_each(|rank| self.record_death(rank as u32));
        Ok(())
    }

    fn record_death(&mut self, rank: u32) {
        if self.lost.insert(rank) {
            self.receiving.remove(&rank);
            self.unreported.push_back(rank);
        }
    }

    /// Drops the messages that were sent.
    fn finish_sends(&mut self) -> Result<()> {
        // An unfinished message stays in `sending`, also after an error: MPI may still read its bytes.
        for _ in 0..self.sending.len() {
            let Some(mut message) = self.sending.pop_front() else { break };
            let finished = self.finish(&mut message);
            if !message.requests.is_empty() {
                self.sending.push_back(message);
            }
            finished?;
        }
        Ok(())
    }

    /// Removes the finished requests of a message, up to the first unfinished one.
    fn finish(&mut self, message: &mut Sending) -> Result<()> {
        while let Some(request) = message.requests.front_mut() {
            let mut is_done = 0;
            // SAFETY: The request was started and is not finished; its status is ignored.
            let code =
                unsafe { ffi::MPI_Test(request, &raw mut is_done, ffi::RSMPI_STATUS_IGNORE) };
            if code != ffi::MPI_SUCCESS as c_int {
                if !Self::is_process_failure(code) {
                    return self.check(code, "sending");
                }
                self.record_death(message.to);
            } else if is_done == 0 {
                break;
            }
            message.requests.pop_front();
        }
        Ok(())
    }

    /// Receives a piece if one has arrived; returns the message if the piece completes it.
    fn receive(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        let mut has_message = 0;
        let mut status = MaybeUninit::zeroed();
        // SAFETY: MPI writes the status when a message has arrived; it is zeroed before.
        let (code, status) = unsafe {
            let code = ffi::MPI_Iprobe(
                ffi::RSMPI_ANY_SOURCE,
                TAG,
                self.communicator,
                &raw mut has_message,
                status.as_mut_ptr(),
            );
            (code, status.assume_init())
        };
        if code != ffi::MPI_SUCCESS as c_int {
            if Self::is_process_failure(code) {
                self.acknowledge(code, "checking for messages")?;
                return Ok(None);
            }
            self.check(code, "checking for messages")?;
        }
        if has_message == 0 {
            return Ok(None);
        }
        let from = status.MPI_SOURCE as u32;
        let mut count = 0;
        // SAFETY: The status is of a message that has arrived.
        unsafe { ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut count) };
        let mut length = [0_u8; LENGTH_BYTES];
        // The pieces of a dead rank are discarded, because the beginning of its message already was.
        let is_lost = self.lost.contains(&from);
        let mut discarded = filled(0_u8, if is_lost { count as usize } else { 0 })?;
        // Receives into the final buffer, because a portion is too large to copy.
        let (buffer, buffer_bytes) = match self.receiving.get_mut(&from) {
            _ if is_lost => (discarded.as_mut_ptr(), discarded.len()),
            None => (length.as_mut_ptr(), LENGTH_BYTES),
            Some(Incoming { length, bytes }) => {
                let buffer_bytes = *length - bytes.len();
                (bytes.spare_capacity_mut().as_mut_ptr().cast(), buffer_bytes)
            }
        };
        let piece_bytes = count as usize;
        if piece_bytes > buffer_bytes {
            return Err(unexpected(from));
        }
        // SAFETY: The bytes fit into the buffer: `length`, `discarded`, or the reserved rest of a
        // message.
        let code = unsafe {
            ffi::MPI_Recv(
                buffer.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                status.MPI_SOURCE,
                TAG,
                self.communicator,
                ffi::RSMPI_STATUS_IGNORE,
            )
        };
        if code != ffi::MPI_SUCCESS as c_int && Self::is_process_failure(code) {
            self.record_death(from);
            return Ok(None);
        }
        self.check(code, "receiving")?;
        if is_lost {
            return Ok(None);
        }
        self.assemble(from, length, piece_bytes)
    }

    /// Adds a piece to its message; the first piece of a message is its `length`.
    fn assemble(
        &mut self,
        from: u32,
        length: [u8; LENGTH_BYTES],
        piece_bytes: usize,
    ) -> Result<Option<(u32, Vec<u8>)>> {
        let Some(Incoming { length, bytes }) = self.receiving.get_mut(&from) else {
            let length = usize::try_from(u64::from_le_bytes(length)).ok();
            let length = length.filter(|_| piece_bytes == LENGTH_BYTES);
            let length = length.ok_or_else(|| unexpected(from))?;
            let bytes = reserve(length).context(|| format!("a message of rank {from}"))?;
            self.receiving.insert(from, Incoming { length, bytes });
            return Ok(None);
        };
        // SAFETY: `receive` wrote this many bytes after the earlier ones, into reserved memory.
        unsafe { bytes.set_len(bytes.len() + piece_bytes) };
        if bytes.len() < *length {
            return Ok(None);
        }
        Ok(self.receiving.remove(&from).map(|incoming| (from, incoming.bytes)))
    }
}

fn unexpected(from: u32) -> Error {
    Error::corrupt(format!(
        "rank {from} sent an unexpected message; run the same build of headwater on every rank"
    ))
}

impl Wire for World {
    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, rank: u32, message: Vec<u8>) -> Result<()> {
        if self.lost.contains(&rank) {
            return Ok(());
        }
        let length = Box::new((message.len() as u64).to_le_bytes());
        let pieces: Vec<(*const u8, usize)> = std::iter::once(&length[..])
            .chain(message.chunks(PIECE_BYTES))
            .map(|piece| (piece.as_ptr(), piece.len()))
            .collect();
        let mut sending =
            Sending { to: rank, requests: VecDeque::new(), _bytes: message, _length: length };
        for (piece, bytes) in pieces {
            let mut request = MaybeUninit::uninit();
            // SAFETY: The bytes stay in place until the request is done: `sending` owns them, and is
            // dropped after its last request, or with `World`.
            let code = unsafe {
                ffi::MPI_Isend(
                    piece.cast::<c_void>(),
                    bytes as c_int,
                    ffi::RSMPI_UINT8_T,
                    rank as c_int,
                    TAG,
                    self.communicator,
                    request.as_mut_ptr(),
                )
            };
            if code != ffi::MPI_SUCCESS as c_int && Self::is_process_failure(code) {
                self.record_death(rank);
                break;
            }
            self.check(code, "sending")?;
            // SAFETY: MPI has written the request.
            sending.requests.push_back(unsafe { request.assume_init() });
        }
        self.sending.push_back(sending);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        if let Some(rank) = self.unreported.pop_front() {
            return Ok(Some(Event::Lost(rank)));
        }
        self.finish_sends()?;
        Ok(self.receive()?.map(|(rank, message)| Event::Message(rank, message)))
    }

    fn is_busy(&self) -> bool {
        !self.sending.is_empty() || !self.receiving.is_empty() || !self.unreported.is_empty()
    }
}

impl Ranks for World {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn abort(&self, status: u8) {
        // SAFETY: MPI is initialised. The call does not return.
        unsafe { ffi::MPI_Abort(self.communicator, c_int::from(status)) };
    }

    /// Finalises MPI.
    fn leave(self: Box<Self>) {
        // MPI_Finalize can wait for ever for a rank that has died or left, and no message is in transit
        // any more.
        if self.fault_tolerance.is_some() {
            std::mem::forget(self.universe);
        }
    }
}

impl FaultTolerance {
    /// Returns the calls if the loaded MPI has them.
    fn find() -> Option<Self> {
        let find = |name: &CStr| {
            // SAFETY: Looks up a symbol in the loaded libraries.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let acknowledge = find(c"MPIX_Comm_failure_ack")?;
        let acknowledged = find(c"MPIX_Comm_failure_get_acked")?;
        // SAFETY: Open MPI's mpi-ext.h declares the functions with these types.
        unsafe {
            Some(Self {
                acknowledge: transmute::<*mut c_void, unsafe extern "C" fn(ffi::MPI_Comm) -> c_int>(
                    acknowledge,
                ),
                acknowledged: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int,
                >(acknowledged),
            })
        }
    }
}
