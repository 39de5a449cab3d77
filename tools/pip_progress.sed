# SPDX-License-Identifier: Apache-2.0
# Shows what takes long of what pip prints: files of at least 10 MB, and when all packages are unpacked (`sed -unf`).
# The line `pip: STATUS` comes last and is the exit status, since that of a pipe is that of its last command.
s/^ *\(Downloading\|Using cached\) \([^ ]*\)-[0-9][^ ]* (\([0-9]\{2,\}\(\.[0-9]*\)\{0,1\} MB\)).*/  \1 \2, \3/p
s/^Installing collected packages: .*/  Unpacking all packages/p
/^pip: 0$/q0
/^pip: [0-9]*$/q1
