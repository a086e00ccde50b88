//! A model of crossbeam's channel, made of locks that the model checker can run.
//!
//! Crossbeam's channel is lock-free and tested by its authors. The model checks how the hand-off uses
//! it: a sender waits for room, messages keep their order, and each end notices when the other is
//! dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex, MutexGuard};

struct Channel<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    waiting: VecDeque<T>,
    has_sender: bool,
    has_receiver: bool,
}

impl<T> Channel<T> {
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait_while(&self, condition: impl FnMut(&mut State<T>) -> bool) -> MutexGuard<'_, State<T>> {
        self.changed.wait_while(self.state.lock().unwrap(), condition).unwrap()
    }
}

pub(super) struct Sender<T>(Arc<Channel<T>>);

pub(super) struct Receiver<T>(Arc<Channel<T>>);

/// The other end is gone.
#[derive(Debug)]
pub(super) struct Disconnected;

pub(super) enum TryRecvError {
    Empty,
    Disconnected,
}

pub(super) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { waiting: VecDeque::new(), has_sender: true, has_receiver: true };
    let channel = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new(), capacity });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> Sender<T> {
    pub(super) fn send(&self, message: T) -> Result<(), Disconnected> {
        let is_full =
            |state: &mut State<T>| state.has_receiver && state.waiting.len() == self.0.capacity;
        let mut state = self.0.wait_while(is_full);
        if !state.has_receiver {
            return Err(Disconnected);
        }
        state.waiting.push_back(message);
        drop(state);
        self.0.changed.notify_all();
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.0.state.lock().unwrap().waiting.len()
    }

    #[expect(clippy::unnecessary_wraps, reason = "crossbeam has channels without a bound, too")]
    pub(super) fn capacity(&self) -> Option<usize> {
        Some(self.0.capacity)
    }
}

impl<T> Receiver<T> {
    pub(super) fn recv(&self) -> Result<T, Disconnected> {
        let mut state = self.0.wait_while(|state| state.has_sender && state.waiting.is_empty());
        let message = state.waiting.pop_front();
        drop(state);
        self.0.changed.notify_all();
        message.ok_or(Disconnected)
    }

    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock().unwrap();
        match state.waiting.pop_front() {
            None if state.has_sender => Err(TryRecvError::Empty),
            None => Err(TryRecvError::Disconnected),
            Some(message) => {
                drop(state);
                self.0.changed.notify_all();
                Ok(message)
            }
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.has_sender = false);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.change(|state| {
            state.has_receiver = false;
            state.waiting.clear();
        });
    }
}
