/* SPDX-License-Identifier: Apache-2.0 */
/* In place of Nettle: libarchive calls it for encrypted zip files, after it has a passphrase, and none is ever given. */
#include <stdlib.h>

#define NEVER_CALLED(name) \
  void name(void);         \
  void name(void) { abort(); }
NEVER_CALLED(nettle_aes128_encrypt)
NEVER_CALLED(nettle_aes128_set_encrypt_key)
NEVER_CALLED(nettle_aes192_encrypt)
NEVER_CALLED(nettle_aes192_set_encrypt_key)
NEVER_CALLED(nettle_aes256_encrypt)
NEVER_CALLED(nettle_aes256_set_encrypt_key)
NEVER_CALLED(nettle_hmac_sha1_digest)
NEVER_CALLED(nettle_hmac_sha1_set_key)
NEVER_CALLED(nettle_hmac_sha1_update)
NEVER_CALLED(nettle_pbkdf2_hmac_sha1)
