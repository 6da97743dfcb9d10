/* SPDX-License-Identifier: Apache-2.0 */
/* In place of libbz2: Debian's archive cannot be part of a shared library. libarchive then refuses bzip2 files. */

enum { CONFIG_ERROR = -9 };
#define REFUSED(name) \
  int name(void);     \
  int name(void) { return CONFIG_ERROR; }
REFUSED(BZ2_bzCompress)
REFUSED(BZ2_bzCompressEnd)
REFUSED(BZ2_bzCompressInit)
REFUSED(BZ2_bzDecompress)
REFUSED(BZ2_bzDecompressEnd)
REFUSED(BZ2_bzDecompressInit)

const char* BZ2_bzlibVersion(void);
const char* BZ2_bzlibVersion(void) { return "none"; }
