//! The memory that a section's operands name: the table of slots, the slots of two ids, buffers, objects.

/// Two ids: one for each cpu.
pub(super) const IDS: usize = 2;

/// The first address of each region, and its length in words.
const REGIONS: [(u64, usize); 10] = [
    (OFFSETS, IDS),
    (OBJECT, 1),
    (SLOTS, SLOT_WORDS),
    (SLOTS + SLOT_DISTANCE, SLOT_WORDS),
    (BUFFERS, 2 * BUFFER_WORDS),
    (SEGMENTS, SEGMENT_WORDS),
    (SEGMENTS + SEGMENT, SEGMENT_WORDS),
    (POINTER, 1),
    (CELLS, 2 * CELL_WORDS),
    (FLAGS, 2),
];

/// The offset of each id's slot.
pub(super) const OFFSETS: u64 = 0x1_0000;
/// The base of the container.
pub(super) const OBJECT: u64 = 0x2_0000;
pub(super) const SLOTS: u64 = 0x4_0000;
pub(super) const SLOT_DISTANCE: u64 = 0x400;
/// The length of a slot in words, which is enough for the largest ring that is tried.
pub(super) const SLOT_WORDS: usize = 32;
/// A buffer for each thread.
pub(super) const BUFFERS: u64 = 0x5_0000;
pub(super) const BUFFER_WORDS: usize = 4;
/// Segments of queues, or trace buffers, of which only the first words exist.
pub(super) const SEGMENTS: u64 = 0x6_0000;
pub(super) const SEGMENT: u64 = 0x1000;
const SEGMENT_WORDS: usize = 24;
/// A pointer to one of two objects, each of eight words.
pub(super) const POINTER: u64 = 0x7_0000;
pub(super) const CELLS: u64 = 0x8_0000;
pub(super) const CELL_WORDS: usize = 8;
/// The address of two words for locks.
pub(super) const FLAGS: u64 = 0x9_0000;

/// The word of an object and of its slot that exist: the sum of both carries.
const CARRY: u64 = 1 << 63;

/// Returns the index of a word in the memory's vector.
pub(super) fn index(address: u64) -> Option<usize> {
    let mut before = 0;
    for (base, words) in REGIONS {
        let at = address.wrapping_sub(base);
        if at < 8 * words as u64 && at % 8 == 0 {
            return Some(before + at as usize / 8);
        }
        before += words;
    }
    None
}

/// Returns the address of a word.
pub(super) fn address(index: usize) -> u64 {
    let mut before = 0;
    for (base, words) in REGIONS {
        if index < before + words {
            return base + 8 * (index - before) as u64;
        }
        before += words;
    }
    0
}

/// Returns a name for the word at an address, for diagrams.
pub(super) fn name(address: u64) -> String {
    let slot = (SLOTS..SLOTS + 2 * SLOT_DISTANCE)
        .contains(&address)
        .then(|| (address - SLOTS) / SLOT_DISTANCE);
    match (slot, address) {
        (Some(slot), _) => format!("slot {slot} +{}", (address - SLOTS) % SLOT_DISTANCE),
        (_, OFFSETS) => "offset of id 0".into(),
        (_, address) if address == OFFSETS + 8 => "offset of id 1".into(),
        (_, OBJECT) => "base of the object".into(),
        (_, POINTER) => "pointer".into(),
        (_, FLAGS) => "gate".into(),
        (_, address) if address == FLAGS + 8 => "word".into(),
        (_, address) if address >= FLAGS => format!("{address:#x}"),
        (_, address) if address >= CELLS => {
            format!("object {} +{}", (address - CELLS) / 64, (address - CELLS) % 64)
        }
        (_, address) if address >= SEGMENTS => {
            format!("segment {} +{}", (address - SEGMENTS) / SEGMENT, address % SEGMENT)
        }
        _ => format!("buffer +{}", address - BUFFERS),
    }
}

/// Returns the first words of both slots, and all others.
pub(super) fn initial(first: impl Fn(usize) -> u64) -> Vec<u64> {
    let mut words: Vec<u64> = vec![0; REGIONS.iter().map(|region| region.1).sum()];
    let mut set = |address: u64, word| {
        if let Some(index) = index(address) {
            words[index] = word;
        }
    };
    for id in 0..IDS {
        // A trace buffer: used, and its owner, which is thread 1 on the cpu of this id.
        set(SEGMENTS + SEGMENT * id as u64, 16);
        set(SEGMENTS + SEGMENT * id as u64 + 8, 1 + id as u64);
        set(OFFSETS + 8 * id as u64, CARRY + SLOT_DISTANCE * id as u64);
        let slot = SLOTS + SLOT_DISTANCE * id as u64;
        // A stack with a limit is one word on: top, limit 3, count. A ring's head is 64 bytes on.
        let of_a_word = |word| match word {
            0 | 1 | 3 => first(id),
            2 => 3,
            8 => 0,
            word => 10 + word as u64,
        };
        (0..SLOT_WORDS).for_each(|word| set(slot + 8 * word as u64, of_a_word(word)));
    }
    set(OBJECT, CARRY + SLOTS);
    set(POINTER, CELLS);
    (0..2 * CELL_WORDS)
        .for_each(|word| set(CELLS + 8 * word as u64, 100 + (word / CELL_WORDS) as u64));
    (0..2 * BUFFER_WORDS).for_each(|word| set(BUFFERS + 8 * word as u64, 50 + word as u64));
    words
}
