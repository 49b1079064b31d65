#!/bin/sh
# Environment for the peers of benchmarks/serving/serving.py: sh benchmarks/serving/engines/setup.sh FOLDER [PYTHON]
set -eu
folder=${1:-.peers}
python=${2:-python3}

"$python" -m venv "$folder/ctranslate2"
"$folder/ctranslate2/bin/python" -m pip install --quiet ctranslate2==4.8.5 safetensors tokenizers \
    waitress==3.0.2 starlette==1.10.0 uvicorn==0.54.0 httptools==0.9.0
