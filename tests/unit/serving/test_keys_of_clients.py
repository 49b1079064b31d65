"""API keys as clients of LibreTranslate and DeepL send them."""

from pathlib import Path
from urllib.error import HTTPError

import deepl
import pytest
from libretranslatepy import LibreTranslateAPI

from serving_app import TEST_SECONDS, fake_services, running_app
from transformer.serving.keys import add_key


def test_keys(tmp_path: Path) -> None:
    """Catches a client whose key is not found, and owners that see each other's glossaries and usage."""
    path = tmp_path / "keys"
    keys = [add_key(path, name) for name in ("one", "two")]
    with running_app(fake_services(keys=path)) as address:
        assert LibreTranslateAPI(address, keys[0]).translate("a dog", "en", "de", timeout=TEST_SECONDS) == "A DOG"
        for key, status in ((None, 401), ("wrong", 403)):
            with pytest.raises(HTTPError) as failure:
                LibreTranslateAPI(address, key).translate("a dog", "en", "de", timeout=TEST_SECONDS)
            assert failure.value.code == status
            failure.value.close()
        clients = [deepl.DeepLClient(key, server_url=address, send_platform_info=False) for key in keys]
        made = clients[0].create_glossary("mine", "EN", "DE", {"dog": "Hund"})
        assert clients[1].list_glossaries() == []
        with pytest.raises(deepl.DeepLException, match="no glossary"):
            clients[1].translate_text("a dog", source_lang="EN", target_lang="DE", glossary=made)
        assert [client.get_usage().character.count for client in clients] == [5, 0]
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=address, send_platform_info=False).get_usage()
        for client in clients:
            client.close()
