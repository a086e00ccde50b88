//! Edits to the files of a store, and digests that fit them again. The metadata are the first file.

/// Numbers at the edges of what the metadata count.
const EDGES: [&str; 12] = [
    "0",
    "1",
    "2",
    "7",
    "255",
    "256",
    "65537",
    "2147483647",
    "2147483648",
    "4294967294",
    "4294967295",
    "9223372036854775807",
];

/// The fuzzer's bytes, taken from the front; zeros when there are no more.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        let number = usize::from(self.byte()) | usize::from(self.byte()) << 8;
        if bound == 0 { 0 } else { number % bound }
    }
}

/// Changes one file in one place.
pub(crate) fn edit(input: &mut Input<'_>, files: &mut [Vec<u8>]) {
    let place = input.below(files.len());
    let kind = input.byte() % 6;
    if kind == 5 {
        return edit_number(input, &mut files[0]);
    }
    let other = files[input.below(files.len())].clone();
    let file = &mut files[place];
    let at = input.below(file.len());
    match kind {
        0 => file.truncate(at),
        1 => *file = other,
        2 => file.insert(at, input.byte()),
        // Four bytes that are a number, as most things in these files are.
        3 => {
            let value = [u32::MAX, 0, 1, 1 << 31, 0xffff, 64][input.below(6)];
            for (byte, new) in file[at..].iter_mut().zip(value.to_le_bytes()) {
                *byte = new;
            }
        }
        _ => {
            let length = input.below(16);
            file[at..].iter_mut().take(length).for_each(|byte| *byte = input.byte());
        }
    }
}

/// Replaces one of the numbers in the metadata's text.
fn edit_number(input: &mut Input<'_>, metadata: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(metadata).into_owned();
    let is_start = |at: &usize| {
        text[..*at].ends_with(": ") && text[*at..].starts_with(|c: char| c.is_ascii_digit())
    };
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).filter(is_start).collect();
    let Some(&start) = starts.get(input.below(starts.len())) else { return };
    let rest = &text[start..];
    let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let edge = EDGES[input.below(EDGES.len())];
    *metadata = format!("{}{edge}{}", &text[..start], &rest[length..]).into_bytes();
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    let value = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(value)).ok()
}

/// Makes the digests of a `.bin` file fit what is in it, as far as its table can be found.
pub(crate) fn repair(bytes: &mut [u8]) -> Option<()> {
    let count = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) as usize;
    let table_at = u64_at(bytes, 16)?;
    let mut digest_at = table_at.checked_add(count.checked_mul(64)?)?;
    for entry in 0..count.min(64) {
        let at = table_at.checked_add(entry * 64)?;
        let (offset, length) = (u64_at(bytes, at.checked_add(24)?)?, u64_at(bytes, at + 32)?);
        let Some(section) = bytes.get(offset..offset.saturating_add(length)) else { continue };
        let size = u32::from_le_bytes(bytes.get(at + 40..at + 44)?.try_into().ok()?) as usize;
        let blocks = section.chunks(if size == 0 { 16 << 10 } else { size });
        let digests: Vec<_> = blocks.map(|block| *blake3::hash(block).as_bytes()).collect();
        for digest in digests {
            bytes.get_mut(digest_at..digest_at + 32)?.copy_from_slice(&digest);
            digest_at += 32;
        }
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..32]).update(bytes.get(table_at..)?);
    let digest = *hasher.finalize().as_bytes();
    bytes.get_mut(32..64)?.copy_from_slice(&digest);
    Some(())
}
