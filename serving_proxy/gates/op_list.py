# SPDX-License-Identifier: Apache-2.0
"""Ops of TensorFlow 2.21 that access more than the graph: files, the process that serves, or the network.

A model is a program, and these are its system calls. The list does not contain:

- ops that only compute;
- ops that change queues, tables and variables of their own session, print to stderr, or need hardware that a host does
  not have (TPU, NCCL);
- ops that need a handle which only a listed op makes (`ReaderRead`, `WriteScalarSummary`).

A test compares the list with the registry, so that ops that a later version adds are noticed.
"""

from __future__ import annotations

READS = "reads files"
WRITES = "writes files"
RUNS = "runs code of the process, or ends it"
ASKS = "uses the network"

_BY_EFFECT = {
    READS: (
        # Ops that read a file's content, or names of files.
        "ReadFile MatchingFiles WholeFileReader WholeFileReaderV2 TextLineReader TextLineReaderV2 "
        "FixedLengthRecordReader FixedLengthRecordReaderV2 TFRecordReader TFRecordReaderV2 LMDBReader RecordInput "
        "Skipgram FixedUnigramCandidateSampler "
        # The same as datasets.
        "TextLineDataset TFRecordDataset TFRecordDatasetV2 FixedLengthRecordDataset FixedLengthRecordDatasetV2 "
        "CSVDataset CSVDatasetV2 ExperimentalCSVDataset LMDBDataset ExperimentalLMDBDataset MatchingFilesDataset "
        "ExperimentalMatchingFilesDataset SqlDataset ExperimentalSqlDataset LoadDataset SnapshotDatasetReader "
        "SnapshotNestedDatasetReader ListSnapshotChunksDataset SnapshotChunkDataset "
        # Checkpoints and vocabularies.
        "InitializeTableFromTextFile InitializeTableFromTextFileV2 GenerateVocabRemapping LoadAndRemapMatrix "
        "Restore RestoreSlice RestoreV2 DTensorRestoreV2"
    ),
    WRITES: (
        "WriteFile Save SaveSlices SaveV2 MergeV2Checkpoints SaveDataset SaveDatasetV2 DatasetToTFRecord "
        "ExperimentalDatasetToTFRecord SnapshotDataset SnapshotDatasetV2 CacheDataset CacheDatasetV2 "
        "CreateSummaryFileWriter CreateSummaryDbWriter DumpTensor CalibrationStatisticsSaver PrintV2"
    ),
    # `FileSystemSetConfiguration` changes how the process reads the files of all models. Custom calls of XLA are looked
    # up by name among the functions of the process.
    RUNS: (
        "PyFunc PyFuncStateless EagerPyFunc Abort WorkerHeartbeat FileSystemSetConfiguration XlaCustomCall "
        "XlaCustomCallV2"
    ),
    # Debug ops send tensors to `grpc://` or `file://`.
    ASKS: (
        "RpcClient RpcCall RpcServer RpcServerStart RpcServerRegister DataServiceDataset DataServiceDatasetV2 "
        "DataServiceDatasetV3 DataServiceDatasetV4 RegisterDataset RegisterDatasetV2 DistributedSave DebugIdentity "
        "DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary"
    ),
}

OPS: dict[str, str] = {name: effect for effect, names in _BY_EFFECT.items() for name in names.split()}
"""Effect of each op."""

FILE_INPUTS: dict[str, int] = {
    "ReadFile": 0,
    "TextLineDataset": 0,
    "TFRecordDataset": 0,
    "TFRecordDatasetV2": 0,
    "FixedLengthRecordDataset": 0,
    "FixedLengthRecordDatasetV2": 0,
    "CSVDataset": 0,
    "CSVDatasetV2": 0,
    "InitializeTableFromTextFile": 1,
    "InitializeTableFromTextFileV2": 1,
}
"""Ops that read the file that an input names, which may be one of the model's own assets: the index of that input."""

NAMES_NOTHING: dict[str, tuple[str, tuple[bytes, ...]]] = {
    "PrintV2": ("output_stream", (b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)")),
    "FixedUnigramCandidateSampler": ("vocab_file", (b"",)),
    "DebugIdentity": ("debug_urls", (b"",)),
    "DebugIdentityV2": ("debug_urls", (b"",)),
    "DebugIdentityV3": ("debug_urls", (b"",)),
    "DebugNanCount": ("debug_urls", (b"",)),
    "DebugNumericSummary": ("debug_urls", (b"",)),
}
"""Ops that are harmless if an attribute is absent or has no other values than these: the attribute and the values."""

CACHES = frozenset({"CacheDataset", "CacheDatasetV2"})
"""Datasets that are kept in memory while their second input is the constant ""."""
