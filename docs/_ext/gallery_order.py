"""The gallery in the order in which a reader asks, and with the look that Matplotlib has by itself."""

QUESTIONS = [
    "margins_of_any_classifier",
    "converges_where_linear_svc_does_not",
    "reading_the_certificate",
    "from_svm_to_margin_terms",
    "margins_of_the_family",
    "unequal_classes",
    "text",
    "several_classes",
    "stream",
    "probabilities",
    "choosing_parameters",
    "leave_one_out",
    "kernels_on_many_rows",
    "data_frames_and_model_files",
    "dask",
]


class Reading:
    """Sort keys of the examples' file names."""

    def __init__(self, folder):
        """Take the folder, which sphinx-gallery gives, and ignore it."""

    def __call__(self, filename):
        """Return the place of a file; what is not listed comes last."""
        name = filename.removeprefix("plot_").removesuffix(".py")
        return QUESTIONS.index(name) if name in QUESTIONS else len(QUESTIONS)

    def __repr__(self):
        """Stay the same from build to build."""
        return "Reading"


def plain_style(gallery_conf, filename):
    """Reset what an example may have changed, and draw in a size that suits the page."""
    import matplotlib as mpl

    mpl.rcParams.update({"figure.figsize": (7.2, 4.0), "figure.constrained_layout.use": True, "savefig.dpi": 110})
