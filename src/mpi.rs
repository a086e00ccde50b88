//! The reducer's wire over MPI.
//!
//! A message travels as its length, and then in pieces, so that no count passes 32 bits. Whatever
//! MPI returns is looked at. With Open MPI's `--with-ft ulfm` the death of a rank is an event;
//! without, MPI ends the job.
#![expect(unsafe_code, reason = "MPI is a library of C; rsmpi's safe calls drop its errors")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, transmute};

use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::topology::Communicator;

use crate::bytes::{filled, reserve};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::reducer::wire::{Event, Wire};

const TAG: c_int = 17;
const PIECE_BYTES: usize = 16 << 20;
const LENGTH_BYTES: usize = 8;

/// Open MPI's classes of errors when a rank has died.
const PROCESS_FAILED: c_int = 75;
const PROCESS_FAILED_PENDING: c_int = 76;

/// All processes that were launched together.
pub struct World {
    universe: Universe,
    communicator: ffi::MPI_Comm,
    rank: u32,
    size: u32,
    sending: VecDeque<Sending>,
    receiving: BTreeMap<u32, Incoming>,
    survival: Option<Survival>,
    lost: BTreeSet<u32>,
    /// Those of the lost that nobody was told of.
    untold: VecDeque<u32>,
}

/// A message on its way out. Its bytes stay where they are until all requests are done.
struct Sending {
    to: u32,
    requests: VecDeque<ffi::MPI_Request>,
    _bytes: Vec<u8>,
    _length: Box<[u8; LENGTH_BYTES]>,
}

/// A message of which some pieces have come.
struct Incoming {
    length: usize,
    bytes: Vec<u8>,
}

/// The calls of Open MPI that a job needs to survive a rank; other MPIs have none.
#[derive(Clone, Copy)]
struct Survival {
    acknowledge: unsafe extern "C" fn(ffi::MPI_Comm) -> c_int,
    acknowledged: unsafe extern "C" fn(ffi::MPI_Comm, *mut ffi::MPI_Group) -> c_int,
}

impl World {
    /// Joins the processes that were launched together.
    ///
    /// # Errors
    /// `Io` when MPI does not work.
    pub fn join() -> Result<Self> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
            .ok_or_else(|| Error::new(ErrorKind::Shutdown, "MPI was initialised before"))?;
        let world = universe.world();
        // SAFETY: A predefined communicator, and a predefined handler.
        let communicator = unsafe { ffi::RSMPI_COMM_WORLD };
        // SAFETY: As above; MPI is initialised.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(communicator, ffi::RSMPI_ERRORS_RETURN) };
        let (rank, size) = (world.rank() as u32, world.size() as u32);
        let is_surviving = std::env::var("OMPI_MCA_mpi_ft_enable").is_ok_and(|on| on != "0");
        let world = Self {
            universe,
            communicator,
            rank,
            size,
            sending: VecDeque::new(),
            receiving: BTreeMap::new(),
            survival: is_surviving.then(Survival::find).flatten(),
            lost: BTreeSet::new(),
            untold: VecDeque::new(),
        };
        world.check(code, "asking for errors")?;
        Ok(world)
    }

    /// Which of them this one is.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ends MPI, after all that are left have said good-bye.
    pub fn leave(self) {
        // Where ranks may die, MPI's own end can wait for ever, for a dead one or for one that has
        // left; nothing is under way any more.
        if self.survival.is_some() {
            std::mem::forget(self.universe);
        }
    }

    fn check(&self, code: c_int, action: &str) -> Result<()> {
        if code == ffi::MPI_SUCCESS as c_int {
            return Ok(());
        }
        let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize];
        let mut length = 0;
        // SAFETY: MPI writes a string that ends, of at most so many bytes.
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
        Err(Error::new(ErrorKind::Io, format!("rank {}: {action} over MPI: {text}", self.rank)))
    }

    /// Whether `code` says that a rank has died.
    fn is_death(code: c_int) -> bool {
        let mut class = 0;
        // SAFETY: Any number may be asked for.
        unsafe { ffi::MPI_Error_class(code, &raw mut class) };
        class == PROCESS_FAILED || class == PROCESS_FAILED_PENDING
    }

    /// Learns who has died.
    fn acknowledge(&mut self, code: c_int, action: &str) -> Result<()> {
        let Some(survival) = self.survival else { return self.check(code, action) };
        let mut dead = MaybeUninit::uninit();
        let mut world = MaybeUninit::uninit();
        // SAFETY: Both groups are written before they are read, and freed once.
        let ranks = unsafe {
            self.check((survival.acknowledge)(self.communicator), "acknowledging a death")?;
            let code = (survival.acknowledged)(self.communicator, dead.as_mut_ptr());
            self.check(code, "asking who has died")?;
            let code = ffi::MPI_Comm_group(self.communicator, world.as_mut_ptr());
            self.check(code, "asking who there is")?;
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
            self.check(code, "asking who has died")?;
            ranks
        };
        ranks.into_iter().for_each(|rank| self.note_death(rank as u32));
        Ok(())
    }

    fn note_death(&mut self, rank: u32) {
        if self.lost.insert(rank) {
            self.receiving.remove(&rank);
            self.untold.push_back(rank);
        }
    }

    /// Lets go of what was sent.
    fn finish_sends(&mut self) -> Result<()> {
        // What is not done stays in `sending`, also after an error: MPI may still read it.
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

    /// Forgets the requests of a message that are done, up to the first that is not.
    fn finish(&mut self, message: &mut Sending) -> Result<()> {
        while let Some(request) = message.requests.front_mut() {
            let mut is_done = 0;
            // SAFETY: A request that was begun and is not done; nothing is asked of its status.
            let code =
                unsafe { ffi::MPI_Test(request, &raw mut is_done, ffi::RSMPI_STATUS_IGNORE) };
            if code != ffi::MPI_SUCCESS as c_int {
                if !Self::is_death(code) {
                    return self.check(code, "sending");
                }
                self.note_death(message.to);
            } else if is_done == 0 {
                break;
            }
            message.requests.pop_front();
        }
        Ok(())
    }

    /// Receives a piece, if one is there; returns the message that it makes whole.
    fn receive(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        let mut is_there = 0;
        let mut status = MaybeUninit::zeroed();
        // SAFETY: MPI writes the status when something is there.
        let (code, status) = unsafe {
            let code = ffi::MPI_Iprobe(
                ffi::RSMPI_ANY_SOURCE,
                TAG,
                self.communicator,
                &raw mut is_there,
                status.as_mut_ptr(),
            );
            (code, status.assume_init())
        };
        if code != ffi::MPI_SUCCESS as c_int {
            if Self::is_death(code) {
                self.acknowledge(code, "listening")?;
                return Ok(None);
            }
            self.check(code, "listening")?;
        }
        if is_there == 0 {
            return Ok(None);
        }
        let from = status.MPI_SOURCE as u32;
        let mut count = 0;
        // SAFETY: The status is of a message that is there.
        unsafe { ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut count) };
        let mut length = [0_u8; LENGTH_BYTES];
        // Of what a dead rank has sent, the beginning may be forgotten: it is nobody's any more.
        let is_lost = self.lost.contains(&from);
        let mut dropped = filled(0_u8, if is_lost { count as usize } else { 0 })?;
        // Where it stays: a portion is long.
        let (room, room_bytes) = match self.receiving.get_mut(&from) {
            _ if is_lost => (dropped.as_mut_ptr(), dropped.len()),
            None => (length.as_mut_ptr(), LENGTH_BYTES),
            Some(Incoming { length, bytes }) => {
                let room_bytes = *length - bytes.len();
                (bytes.spare_capacity_mut().as_mut_ptr().cast(), room_bytes)
            }
        };
        let piece_bytes = count as usize;
        if piece_bytes > room_bytes {
            return Err(unexpected(from));
        }
        // SAFETY: No more bytes than there is room for: in `length`, in `dropped`, or behind what has
        // come of a message, for all of which memory was reserved.
        let code = unsafe {
            ffi::MPI_Recv(
                room.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                status.MPI_SOURCE,
                TAG,
                self.communicator,
                ffi::RSMPI_STATUS_IGNORE,
            )
        };
        if code != ffi::MPI_SUCCESS as c_int && Self::is_death(code) {
            self.note_death(from);
            return Ok(None);
        }
        self.check(code, "receiving")?;
        if is_lost {
            return Ok(None);
        }
        self.assemble(from, length, piece_bytes)
    }

    /// Notes that a piece has come, which is `length` where it is a message's first.
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
        // SAFETY: So many bytes were received behind those that were there, with room for them.
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
            // SAFETY: The piece is in memory that stays until its request is done: `sending` owns it,
            // and is dropped when none of its requests is left, or MPI's end has come.
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
            if code != ffi::MPI_SUCCESS as c_int && Self::is_death(code) {
                self.note_death(rank);
                break;
            }
            self.check(code, "sending")?;
            // SAFETY: MPI has written it.
            sending.requests.push_back(unsafe { request.assume_init() });
        }
        self.sending.push_back(sending);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>> {
        if let Some(rank) = self.untold.pop_front() {
            return Ok(Some(Event::Lost(rank)));
        }
        self.finish_sends()?;
        Ok(self.receive()?.map(|(rank, message)| Event::Message(rank, message)))
    }

    fn is_busy(&self) -> bool {
        !self.sending.is_empty() || !self.receiving.is_empty() || !self.untold.is_empty()
    }
}

impl Survival {
    /// The calls, where the MPI that this program runs with has them.
    fn find() -> Option<Self> {
        let find = |name: &CStr| {
            // SAFETY: Looks a name up among those of the libraries that are loaded.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let acknowledge = find(c"MPIX_Comm_failure_ack")?;
        let acknowledged = find(c"MPIX_Comm_failure_get_acked")?;
        // SAFETY: The functions of these names have these types, by Open MPI's mpi-ext.h.
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
