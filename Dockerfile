# The image that the chart runs: the program and nothing else. It needs no shell, no temporary folder and no certificates: a vCenter
# is trusted by what its VSphereServer says. `make image` builds bin/sallyport first, statically linked.
FROM scratch
COPY bin/sallyport /usr/local/bin/sallyport
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/sallyport"]
