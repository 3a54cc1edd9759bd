"""Publication of models on the Hugging Face Hub, with the package huggingface_hub.

Models are read without that package, see `scitoolkit.core.model_index`.
"""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.errors import BackendError, ConfigError, DataError, ScitoolkitError


def upload(folder: Path, owner: str, name: str, version: str) -> str:
    """Upload the files of a folder to the repository OWNER/NAME and tag them with the version.

    The address and the token are those of huggingface_hub ($HF_ENDPOINT, $HF_TOKEN or its login).
    A new repository is private.

    Returns:
        The address `hf://OWNER/NAME@VERSION`.

    Raises:
        BackendError: huggingface_hub is not installed.
        ConfigError: the version exists already.
        DataError: the hub refuses, or cannot be reached.
    """
    try:
        import huggingface_hub as hub
    except ImportError:
        raise BackendError(
            "huggingface_hub is not installed", fix="pip install 'scitoolkit[hub]'"
        ) from None
    repository, client = f"{owner}/{name}", hub.HfApi()
    try:
        client.create_repo(repository, private=True, exist_ok=True)
        if version in [tag.name for tag in client.list_repo_refs(repository).tags]:
            raise ConfigError(
                f"version {version} of {name} exists already",
                where=f"hf://{owner}",
                fix="publish another version; a published one is never replaced",
            )
        # Files of the version before that this one does not have are deleted.
        commit = client.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=f"version {version}",
            delete_patterns="*",
        )
        client.create_tag(repository, tag=version, revision=commit.oid)
    except ScitoolkitError:
        raise
    except Exception as error:  # those of its transport, another package in each version
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"the hub refuses: {text}",
            where=f"hf://{repository}",
            fix="check HF_TOKEN, which needs the right to write, and the connection",
        ) from None
    return f"hf://{repository}@{version}"
