//! Writes and reads what the tokens of every codec hold: bytes, numbers and times.

use serde::Serialize;

use crate::error::{Error, Result};

/// The tokens before a time: seconds since 1970 in 8 bytes, and since the event before in 1 or 4.
pub(super) struct TimeTokens {
    pub absolute: u16,
    pub since_1: u16,
    pub since_4: u16,
}

impl TimeTokens {
    /// Whether `token` begins a time.
    pub(super) fn has(&self, token: u16) -> bool {
        [self.absolute, self.since_1, self.since_4].contains(&token)
    }
}

/// The end of the times that are stored, 2200-01-01, in seconds. They begin with 1970.
pub(crate) const TIME_END_SECONDS: u64 = 7_258_118_400;

/// The time of an event, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenTime {
    /// Since 1970.
    Absolute(u64),
    /// Since the timed event before it.
    Since(u32),
}

/// Writes tokens; byte 0 is the token `BYTE`.
pub(super) struct TokenWriter<'a, const BYTE: u16> {
    pub tokens: &'a mut [u16],
    pub count: usize,
}

impl<const BYTE: u16> TokenWriter<'_, BYTE> {
    pub(super) fn token(&mut self, token: u16) {
        self.tokens[self.count] = token;
        self.count += 1;
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let room = &mut self.tokens[self.count..][..bytes.len()];
        room.iter_mut().zip(bytes).for_each(|(token, &byte)| *token = BYTE + u16::from(byte));
        self.count += bytes.len();
    }

    /// Writes the length of a text, which is below 256, and its bytes.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        self.bytes(&[bytes.len() as u8]);
        self.bytes(bytes);
    }

    /// Writes the two bytes of a code, the upper one first.
    pub(super) fn code(&mut self, code: u16) {
        let [low, high] = code.to_le_bytes();
        self.bytes(&[high, low]);
    }

    pub(super) fn time(&mut self, tokens: &TimeTokens, time: TokenTime) {
        match time {
            TokenTime::Since(seconds) if seconds < 256 => {
                self.token(tokens.since_1);
                self.bytes(&[seconds as u8]);
            }
            TokenTime::Since(seconds) => {
                self.token(tokens.since_4);
                self.bytes(&network_order(u64::from(seconds))[4..]);
            }
            TokenTime::Absolute(seconds) => {
                self.token(tokens.absolute);
                self.bytes(&network_order(seconds));
            }
        }
    }
}

/// Returns the bytes of a number, the most significant first.
fn network_order(number: u64) -> [u8; 8] {
    let mut bytes = number.to_le_bytes();
    bytes.reverse();
    bytes
}

/// Reads tokens; byte 0 is the token `BYTE`.
pub(super) struct TokenReader<'a, const BYTE: u16> {
    tokens: &'a [u16],
    at: usize,
}

impl<'a, const BYTE: u16> TokenReader<'a, BYTE> {
    pub(super) fn new(tokens: &'a [u16]) -> Self {
        Self { tokens, at: 0 }
    }

    /// Returns the next token without taking it; none at the end.
    pub(super) fn peek(&self) -> Option<u16> {
        self.tokens.get(self.at).copied()
    }

    /// Takes the next token, if there is one.
    pub(super) fn take(&mut self) -> Option<u16> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Takes a number of `count` bytes, the most significant first.
    pub(super) fn number(&mut self, count: usize) -> Result<u64> {
        let mut number = 0;
        for _ in 0..count {
            number = number << 8 | u64::from(self.byte()?);
        }
        Ok(number)
    }

    /// Takes one byte.
    pub(super) fn byte(&mut self) -> Result<u8> {
        let byte = self.peek().and_then(|token| token.checked_sub(BYTE)).unwrap_or(u16::MAX);
        let byte = u8::try_from(byte).map_err(|_| {
            self.wrong(format_args!("the token of a byte ({BYTE} to {})", BYTE + 255))
        })?;
        self.at += 1;
        Ok(byte)
    }

    /// Takes the two bytes of a code.
    pub(super) fn code(&mut self, is_code: impl Fn(u16) -> bool) -> Result<u16> {
        match self.number(2)? as u16 {
            code if is_code(code) => Ok(code),
            _ => Err(self.were_wrong(2, "the two bytes of a code that a number has")),
        }
    }

    /// Takes the time behind `role`, one of `tokens`.
    pub(super) fn time(&mut self, tokens: &TimeTokens, role: u16) -> Result<TokenTime> {
        if role == tokens.absolute {
            return match self.number(8)? {
                seconds @ ..TIME_END_SECONDS => Ok(TokenTime::Absolute(seconds)),
                _ => Err(self.were_wrong(8, "the bytes of a time before 2200")),
            };
        }
        if role == tokens.since_1 {
            return Ok(TokenTime::Since(self.byte()?.into()));
        }
        match self.number(4)? as u32 {
            seconds @ 256.. => Ok(TokenTime::Since(seconds)),
            _ => Err(self.were_wrong(4, "the bytes of 256 seconds or more")),
        }
    }

    /// Returns the error that another token than the next one was expected.
    pub(super) fn wrong(&self, expected: impl std::fmt::Display) -> Error {
        let found = match self.peek() {
            Some(token) => format!("the token {token}"),
            None => "the end".to_owned(),
        };
        Error::data(format!("token {}: expected {expected}, found {found}", self.at))
    }

    /// Returns the error that another token than the last one that was taken was expected.
    pub(super) fn was_wrong(&mut self, expected: impl std::fmt::Display) -> Error {
        self.were_wrong(1, expected)
    }

    /// Returns the error that others than the last `count` tokens that were taken were expected.
    fn were_wrong(&mut self, count: usize, expected: impl std::fmt::Display) -> Error {
        self.at -= count;
        self.wrong(expected)
    }
}
