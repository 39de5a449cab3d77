#include <immintrin.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
void h(int s){printf("SIGILL\n");exit(1);}
__attribute__((target("avx512bf16,avx512f,avx512vl")))
int main(){signal(SIGILL,h);__m512 a=_mm512_set1_ps(0);__m512bh b=(__m512bh)_mm512_set1_epi32(0x3f803f80);a=_mm512_dpbf16_ps(a,b,b);float o[16];_mm512_storeu_ps(o,a);printf("%f\n",o[0]);}
