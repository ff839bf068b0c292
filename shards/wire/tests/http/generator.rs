//! Byte sequences that are almost requests, from a seed.

/// SplitMix64: a few lines, one seed, the same sequence everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Ascending places inside `length` at which a connection's bytes may be cut.
    pub fn cuts(&mut self, length: usize) -> Vec<usize> {
        let mut cuts: Vec<_> = (0..self.below(8)).map(|_| self.below(length + 1)).collect();
        cuts.sort_unstable();
        cuts
    }
}

const METHODS: &[&str] = &["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW", "G(T", ""];
const TARGETS: &[&str] = &[
    "/",
    "/api/v1/ephemeral/push",
    "/a?b=c",
    "/a%20b?x=%",
    "*",
    "http://h/abs?q",
    "http://h",
    "/é",
    "//a",
    "/a?b?c",
    "x",
    "/a#b",
    "",
];
const VERSIONS: &[&str] =
    &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "HTP/1.1"];
const LINES: &[&str] = &[
    "accept: */*",
    "User-Agent: x",
    "connection: close",
    "Connection: keep-alive",
    "x-queen-tenant: t",
    "x: \t y \t",
    "x:",
    "host: again",
    "content-length: 0",
    "transfer-encoding: gzip",
    "expect: 100-continue",
    "expect: tea",
    " folded: yes",
    "na me: x",
    "x : y",
    ": none",
    "no colon",
    "x: a\rb",
    "x: \u{7f}",
    "x: é",
    "authorization: Basic x",
];
const ENDS: &[&str] = &["\n", "\r", "\r\n\r\n", " \r\n", ""];

/// A line end: almost always the right one.
fn end(random: &mut Random) -> &'static str {
    if random.once_in(60) { random.pick(ENDS) } else { "\r\n" }
}

/// One request, right in most parts and wrong in few.
pub fn request(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    for (common, rare, oddity, behind) in
        [("POST", METHODS, 4, " "), ("/path", TARGETS, 3, " "), ("HTTP/1.1", VERSIONS, 4, "")]
    {
        text += if random.once_in(oddity) { random.pick(rare) } else { common };
        text += behind;
    }
    text += end(random);
    if !random.once_in(30) {
        text += "Host: h";
        text += end(random);
    }
    for _ in 0..random.below(4) {
        // Most lines are from the harmless front of the list.
        let among = if random.once_in(5) { LINES.len() } else { 7 };
        text += LINES[random.below(among)];
        text += end(random);
    }
    let body: String = "0123456789abcdef".chars().cycle().take(random.below(40)).collect();
    match random.below(8) {
        0 => {
            text += end(random);
        }
        1..=3 => chunked(random, &mut text, &body),
        _ => {
            let length = if random.once_in(20) { body.len() + 1 } else { body.len() };
            text += &format!("content-length: {length}{}", end(random));
            text += end(random);
            text += &body;
        }
    }
    let mut bytes = text.into_bytes();
    if random.once_in(6) {
        mutate(random, &mut bytes);
    }
    bytes
}

fn chunked(random: &mut Random, text: &mut String, body: &str) {
    *text += "Transfer-Encoding: chunked";
    *text += end(random);
    *text += end(random);
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(1 + random.below(rest.len()));
        rest = behind;
        let extension = if random.once_in(6) { random.pick(&[";a", ";a=b", " ;a", " ", ";\u{1}", "x"]) } else { "" };
        *text += &format!("{:x}{extension}{}{chunk}{}", chunk.len(), end(random), end(random));
    }
    *text += "0";
    *text += end(random);
    if random.once_in(4) {
        *text += random.pick(&["t: 1", "t:", "t", " t: 1", "t: \u{1}"]);
        *text += end(random);
    }
    *text += end(random);
}

/// Changes, drops or doubles a few bytes.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.next() as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, bytes[at]),
            _ => bytes.truncate(at),
        }
    }
}
