# An image whose one more layer is some 100 kB: an overlay, made in a stage that is thrown away.
#
# The served image has neither rewriter nor a changed file of sglang in it. If the base image moves
# on to other files, the patched modules refuse to be imported, so the server does not start.
ARG SGLANG_TAG=v0.5.23
FROM lmsysorg/sglang:${SGLANG_TAG} AS patched

RUN python3 -m pip install --no-cache-dir sglang-rewriter==0.1.0 \
    && rewriter apply --overlay /opt/overlay \
    && rewriter check --require applied --overlay /opt/overlay

FROM lmsysorg/sglang:${SGLANG_TAG}

COPY --from=patched /opt/overlay /opt/overlay
ENV PYTHONPATH=/opt/overlay
CMD ["python3", "-m", "sglang.launch_server", "--help"]
