//! The dynamic table: sizes, order, memory.

use std::collections::VecDeque;

use super::*;

#[test]
fn the_static_table_has_61_entries() {
    for (index, name, value) in [
        (1, ":authority", ""),
        (2, ":method", "GET"),
        (7, ":scheme", "https"),
        (8, ":status", "200"),
        (14, ":status", "500"),
        (16, "accept-encoding", "gzip, deflate"),
        (31, "content-type", ""),
        (32, "cookie", ""),
        (54, "server", ""),
        (55, "set-cookie", ""),
        (61, "www-authenticate", ""),
    ] {
        let block = [0x80 | index];
        let expect = vec![(name.to_owned(), value.to_owned())];
        assert_eq!(decode(&mut Decoder::new(0), &block), Ok(expect));
    }
}

/// Model of a table without tricks: newest first.
struct Model {
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size_max: usize,
}

impl Model {
    fn size(&self) -> usize {
        let sizes = self.entries.iter().map(|(n, v)| n.len() + v.len() + 32);
        sizes.sum()
    }

    fn add(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.entries.push_front((name, value));
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.size() > self.size_max {
            self.entries.pop_back();
        }
    }
}

#[test]
fn the_table_is_that_of_a_model_and_allocates_no_more_than_its_size() {
    let mut seed = 7_u32;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % below
    };
    for size_max in [0, 31, 32, 33, 100, 4_096] {
        let mut table = Table::new(size_max);
        let mut model = Model {
            entries: VecDeque::new(),
            size_max: size_max as usize,
        };
        for step in 0..3_000_u32 {
            if random(200) == 0 {
                let size_max = size_max.saturating_sub(random(200) as u32 * 20);
                table.set_size_max(size_max);
                model.size_max = size_max as usize;
                model.shrink();
            }
            let most = [3, 40, 400, 5_000][random(4)];
            let name = step.to_be_bytes().repeat(1 + random(most) / 4);
            let value = step.to_le_bytes().repeat(random(most) / 4);
            table.add(&name, &value);
            model.add(name, value);
            assert_eq!(table.size() as usize, model.size());
            assert_eq!(table.len(), model.entries.len());
            let equal = (model.entries.iter().enumerate())
                .all(|(age, (name, value))| table.get(age) == Some((&name[..], &value[..])));
            assert!(equal, "size {size_max}, step {step}");
            assert_eq!(table.get(table.len()), None);
            assert!(table.capacity() <= 4_096, "{}", table.capacity());
        }
    }
}

#[test]
fn memory_is_not_allocated_again_in_a_steady_state() {
    let mut table = Table::new(4_096);
    for step in 0..100_u32 {
        table.add(&[b'n'; 20], &step.to_be_bytes().repeat(20));
    }
    let capacity = table.capacity();
    for step in 0..10_000_u32 {
        table.add(&[b'n'; 20], &step.to_be_bytes().repeat(20));
        assert_eq!(table.capacity(), capacity);
    }
}

/// RFC 7541 §4.4: the entry of the name may be dropped when the new one is added.
#[test]
fn a_new_entry_may_have_the_name_of_one_that_it_drops() {
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let block = hex("3f17 4003 6162 6301 31 7e 0b 3030 3030 3030 3030 3030 30");
    let decoded = decode(&mut decoder, &block);
    assert_eq!(decoded, Ok(fields(&["abc: 1", "abc: 00000000000"])));
    assert_eq!(entries(&decoder.table), fields(&["abc: 00000000000"]));
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let block = hex("3f05 4001 6101 31 40 02 6162 02 3132");
    let decoded = decode(&mut decoder, &block);
    assert_eq!(decoded, Ok(fields(&["a: 1", "ab: 12"])));
    assert_eq!((decoder.table.len(), decoder.table.size()), (1, 36));
    let block = hex("40 04 6162 6364 02 3132");
    decode(&mut decoder, &block).expect("a block");
    assert_eq!((decoder.table.len(), decoder.table.size()), (0, 0));
}
