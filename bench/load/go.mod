module oooi.bench/load

go 1.25.0
