//! The server's side of SCRAM: offer, challenge and result, each a type that only the previous step
//! creates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{
    Keys, MECHANISM, MECHANISM_PLUS, Nonce, ScramError, Verifier, attribute, hmac, is_nonce,
};
use super::{decode_key, sha256, xor};

/// State after the offer of SCRAM: the client's first message is expected.
#[derive(Debug)]
pub struct Offer {
    verifier: Verifier,
    /// The `tls-server-end-point` data of Evenkeel's certificate, if PLUS was offered.
    binding: Option<Vec<u8>>,
    nonce: Nonce,
}

/// State after the challenge: the client's proof is expected.
#[derive(Debug)]
pub struct Challenge {
    verifier: Verifier,
    /// `client-first-message-bare "," server-first-message`.
    messages: Vec<u8>,
    /// The whole nonce.
    nonce: Vec<u8>,
    /// Required value of `c=`.
    binding: String,
}

impl Offer {
    /// Creates an offer to a client with this verifier. `binding` is the hash of Evenkeel's
    /// certificate (RFC 5929 §4.1) if the client uses TLS and PLUS is to be offered.
    #[must_use]
    pub fn new(verifier: Verifier, binding: Option<Vec<u8>>, nonce: Nonce) -> Self {
        Offer {
            verifier,
            binding,
            nonce,
        }
    }

    /// Returns the mechanisms to list in AuthenticationSASL.
    #[must_use]
    pub fn mechanisms(&self) -> &'static [&'static [u8]] {
        match self.binding {
            Some(_) => &[MECHANISM_PLUS, MECHANISM],
            None => &[MECHANISM],
        }
    }

    /// Processes the client's first message, and returns the challenge to send.
    ///
    /// # Errors
    ///
    /// Fails if the message is malformed or not acceptable; the login has failed.
    pub fn first(
        self,
        mechanism: &[u8],
        message: &[u8],
    ) -> Result<(Challenge, Vec<u8>), ScramError> {
        let plus = self.chosen(mechanism)?;
        let (header, bare) = split_header(message)?;
        let binding = self.expected_binding(header, plus)?;
        let client_nonce = client_nonce(bare)?;
        let nonce = [client_nonce, STANDARD.encode(self.nonce).as_bytes()].concat();
        let mut challenge = [b"r=", nonce.as_slice(), b",s="].concat();
        challenge.extend_from_slice(STANDARD.encode(&self.verifier.salt).as_bytes());
        challenge.extend_from_slice(format!(",i={}", self.verifier.iterations).as_bytes());
        let messages = [bare, challenge.as_slice()].join(&b',');
        let next = Challenge {
            verifier: self.verifier,
            messages,
            nonce,
            binding,
        };
        Ok((next, challenge))
    }

    fn chosen(&self, mechanism: &[u8]) -> Result<bool, ScramError> {
        match mechanism {
            MECHANISM => Ok(false),
            MECHANISM_PLUS if self.binding.is_some() => Ok(true),
            _ => Err(ScramError::Unsupported),
        }
    }

    /// Returns the required value of `c=`. RFC 5802 §6: `n`: the client does not support channel
    /// binding; `y`: it does, but assumes that the server does not; `p`: it uses channel binding.
    fn expected_binding(&self, header: &[u8], plus: bool) -> Result<String, ScramError> {
        let mut bound = header.to_vec();
        match (header, plus) {
            (b"n,,", false) => {}
            (b"y,,", false) if self.binding.is_none() => {}
            (b"y,,", false) => return Err(ScramError::ChannelBinding),
            (b"p=tls-server-end-point,,", true) => bound.extend(self.binding.iter().flatten()),
            ([b'p', ..], _) | (_, true) => return Err(ScramError::ChannelBinding),
            _ => return Err(ScramError::Unsupported),
        }
        Ok(STANDARD.encode(bound))
    }
}

impl Challenge {
    /// Verifies the client's last message. Returns its keys, which log in to servers with the same
    /// verifier, and the server's last message.
    ///
    /// # Errors
    ///
    /// Fails with [`ScramError::WrongPassword`] if the proof is wrong, or with another error if the
    /// message is malformed.
    pub fn last(self, message: &[u8]) -> Result<(Keys, Vec<u8>), ScramError> {
        let (binding, rest) = attribute(message, b'c').ok_or(ScramError::Malformed)?;
        let (nonce, _) = attribute(rest, b'r').ok_or(ScramError::Malformed)?;
        let (without_proof, proof) = split_proof(message).ok_or(ScramError::Malformed)?;
        if binding != self.binding.as_bytes() {
            return Err(ScramError::ChannelBinding);
        }
        if nonce != self.nonce {
            return Err(ScramError::Nonce);
        }
        let signed = [self.messages.as_slice(), b",", without_proof];
        let mut client = Zeroizing::new(hmac(&self.verifier.stored_key, &signed));
        xor(&mut client, &proof);
        let right: bool = sha256(&*client).ct_eq(&self.verifier.stored_key).into();
        if !right || self.verifier.mock {
            return Err(ScramError::WrongPassword);
        }
        let signature = STANDARD.encode(hmac(&self.verifier.server_key, &signed));
        let keys = Keys {
            client,
            server: Zeroizing::new(self.verifier.server_key),
        };
        Ok((keys, [b"v=", signature.as_bytes()].concat()))
    }
}

/// Splits a message into the GS2 header (flag and authorization identity, with both commas) and the
/// bare message.
fn split_header(message: &[u8]) -> Result<(&[u8], &[u8]), ScramError> {
    let commas = memchr::memchr_iter(b',', message).nth(1);
    let end = commas.ok_or(ScramError::Malformed)?.saturating_add(1);
    message.split_at_checked(end).ok_or(ScramError::Malformed)
}

/// Returns the nonce of a bare first message; as on servers, the user name in it is empty or
/// ignored.
fn client_nonce(bare: &[u8]) -> Result<&[u8], ScramError> {
    if bare.starts_with(b"m=") {
        return Err(ScramError::Unsupported);
    }
    let (_, rest) = attribute(bare, b'n').ok_or(ScramError::Malformed)?;
    let (nonce, _) = attribute(rest, b'r').ok_or(ScramError::Malformed)?;
    if is_nonce(nonce) {
        return Ok(nonce);
    }
    Err(ScramError::Malformed)
}

/// Returns the message up to `,p=`, and the proof after it.
fn split_proof(message: &[u8]) -> Option<(&[u8], [u8; 32])> {
    let at = memchr::memmem::rfind(message, b",p=")?;
    let (without, proof) = message.split_at_checked(at)?;
    Some((without, decode_key(proof.strip_prefix(b",p=")?)?))
}
