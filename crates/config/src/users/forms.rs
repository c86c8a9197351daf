//! Checks the formats of verifiers, as database servers store them.

/// Returns whether a text has the format
/// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`. The last three parts are in base64.
pub(super) fn is_scram(text: &str) -> bool {
    let parts = text.strip_prefix("SCRAM-SHA-256$").and_then(|rest| {
        let (front, keys) = rest.split_once('$')?;
        let (iterations, salt) = front.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        Some((iterations, salt, stored, server))
    });
    parts.is_some_and(|(iterations, salt, stored, server)| {
        let is_key = |text: &str| is_base64(text) && text.len() == 44 && text.ends_with('=');
        iterations.parse::<u32>().is_ok_and(|number| number > 0)
            && is_base64(salt)
            && is_key(stored)
            && is_key(server)
    })
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !digits.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(good)
}

pub(super) fn is_md5(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("md5")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(hex))
}

/// Returns whether a text has a format of `mysql.user`. It is `*` and a SHA-1 in hex
/// (mysql_native_password), or `$A$005$`, a salt of 20 bytes and a hash of 43
/// (caching_sha2_password). The latter may be in hex, after `0x`.
pub(super) fn is_mysql(text: &str) -> bool {
    if let Some(digits) = text.strip_prefix("0x") {
        let is_whole = digits.len() == 140 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        // `$A$`
        return is_whole && digits.starts_with("244124") && digits[12..14] == *"24";
    }
    let is_native = text
        .strip_prefix('*')
        .is_some_and(|digits| digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let is_sha2 = text.strip_prefix("$A$").is_some_and(|rest| {
        let rest = rest.as_bytes();
        rest.len() == 67 && rest[..3].iter().all(u8::is_ascii_hexdigit) && rest[3] == b'$'
    });
    is_native || is_sha2
}
